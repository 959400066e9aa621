package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// call is one call of the runtime, decoded.
type call struct {
	args *skel.CmdArgs
	conf *netConf
	env  environment
}

func (c *call) attachment() agentapi.Attachment {
	return agentapi.Attachment{ContainerID: c.args.ContainerID, Interface: c.args.IfName}
}

func (c *call) client() *agentapi.Client { return agentapi.NewClient(c.conf.IPAM.Socket) }

// verb makes a skel function of a verb. What the agent answers on its merits
// keeps its code; its absence becomes the code that fits the verb.
func (p plugin) verb(name string, run func(context.Context, *call) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		conf, err := parseNetConf(args.StdinData)
		if err != nil {
			return cniError(name, "", err)
		}
		env, err := parseEnvironment(args.Args)
		// A DEL must do what it can with what it has, and needs nothing of CNI_ARGS.
		if err != nil && name != "DEL" {
			return cniError(name, "", err)
		}
		c := &call{args: args, conf: conf, env: env}
		ctx := context.Background()
		if out, ok := p.stdout.(*os.File); ok && name == "ADD" {
			ctx = whileRead(ctx, out)
		}
		return cniError(name, c.subject(), run(ctx, c))
	}
}

// subject says in messages what the call was about.
func (c *call) subject() string {
	switch {
	case c.args.ContainerID == "":
		return fmt.Sprintf(" of network %s", c.conf.Name)
	case c.env.pod.Name == "":
		return fmt.Sprintf(" of %s in container %s", c.args.IfName, c.args.ContainerID)
	default:
		return fmt.Sprintf(" of %s in pod %s/%s", c.args.IfName, c.env.pod.Namespace, c.env.pod.Name)
	}
}

// cniError makes of any error the one that skel prints.
func cniError(verb, subject string, err error) error {
	if err == nil {
		return nil
	}
	sentence := fmt.Sprintf("fenceline %s%s: %s", verb, subject, err)
	if e, ok := errors.AsType[*agentapi.Error](err); ok {
		return types.NewError(e.Code, fmt.Sprintf("fenceline %s%s: %s", verb, subject, e.Msg), e.Details)
	}
	if _, ok := errors.AsType[*agentapi.AwayError](err); ok {
		code := agentapi.CodeTryAgainLater
		if verb == "STATUS" {
			code = agentapi.CodeNotAvailable
		}
		return types.NewError(code, sentence,
			"the runtime may repeat the call; if this lasts, look at the agent of this node: "+
				"kubectl -n fenceline-system get pods -o wide")
	}
	return types.NewError(agentapi.CodeInternal, sentence, "")
}
