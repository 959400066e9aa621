// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// call is one decoded call of the runtime.
type call struct {
	args *skel.CmdArgs
	conf *netConf
	env  environment
}

func (c *call) attachment() agentapi.Attachment {
	return agentapi.Attachment{ContainerID: c.args.ContainerID, Interface: c.args.IfName}
}

func (c *call) client() *agentapi.Client { return agentapi.NewClient(c.conf.IPAM.Socket) }

// verb returns the function of a verb for skel.
func (p plugin) verb(name string, run func(context.Context, *call) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		conf, err := parseNetConf(args.StdinData)
		if err != nil {
			return cniError(name, "", err)
		}
		env, err := parseEnvironment(args.Args)
		// A DEL needs nothing of CNI_ARGS and must not fail because of them.
		if err != nil && name != "DEL" {
			return cniError(name, "", err)
		}
		c := &call{args: args, conf: conf, env: env}
		ctx := context.Background()
		if out, ok := p.stdout.(*os.File); ok && name == "ADD" {
			ctx = whileRead(ctx, out)
		}
		if c.standsAlone(name) {
			return cniError(name, c.subject(), p.alone(ctx, name, c))
		}
		return cniError(name, c.subject(), run(ctx, c))
	}
}

// subject returns the subject of the call for messages, with a leading space.
func (c *call) subject() string {
	switch {
	case c.args.ContainerID == "":
		return fmt.Sprintf(" of network %s", c.conf.Name)
	case c.env.pod.Namespace == "":
		return fmt.Sprintf(" of %s in container %s", c.args.IfName, c.args.ContainerID)
	default:
		return fmt.Sprintf(" of %s in pod %s/%s", c.args.IfName, c.env.pod.Namespace, c.env.pod.Name)
	}
}
