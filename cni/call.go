// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

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
		if err != nil && name != "DEL" { // a DEL needs nothing of CNI_ARGS
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
		return " of network " + c.conf.Name
	case c.env.pod.Namespace == "":
		return fmt.Sprintf(" of %s in container %s", c.args.IfName, c.args.ContainerID)
	}
	return fmt.Sprintf(" of %s in pod %s/%s", c.args.IfName, c.env.pod.Namespace, c.env.pod.Name)
}

// errUnread is the cause with which a call ends when its result has no reader.
var errUnread = errors.New("the calling plugin or the runtime has ended and no longer reads the result")

// whileRead returns a context that ends when the reading end of the pipe out is closed. After a
// timeout a runtime kills the plugin that it called, but not the IPAM plugin below. Without this
// context the agent would go on with a call that has no caller. It costs a thread until the end.
func whileRead(ctx context.Context, out *os.File) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	fd := int32(out.Fd())
	go func() {
		// Without requested events poll reports only POLLERR and POLLHUP. The writing end of a pipe
		// gets POLLERR when the reading end is closed (poll(2)).
		fds := []unix.PollFd{{Fd: fd}}
		_, err := unix.Poll(fds, -1)
		for errors.Is(err, unix.EINTR) {
			_, err = unix.Poll(fds, -1)
		}
		if err == nil { // after an error, the agent's deadline ends the call
			cancel(errUnread)
		}
	}()
	return ctx
}

// environment holds the values of CNI_ARGS that the plugin uses.
type environment struct {
	pod agentapi.Pod
	ips []string
}

// parseEnvironment reads CNI_ARGS, "K=V;K2=V2". It ignores unknown keys, which are for other plugins.
func parseEnvironment(args string) (environment, error) {
	var env environment
	for pair := range strings.SplitSeq(args, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return environment{}, agentapi.Errorf(agentapi.CodeInvalidEnvironment, "CNI_ARGS holds %q, which is not KEY=VALUE", pair)
		}
		switch key {
		case "K8S_POD_NAMESPACE":
			env.pod.Namespace = value
		case "K8S_POD_NAME":
			env.pod.Name = value
		case "K8S_POD_UID":
			env.pod.UID = value
		case "IP":
			env.ips = strings.Split(value, ",")
		}
	}
	return env, nil
}

// requirePod returns an error if the call names no pod: a lease needs a holder.
func (e environment) requirePod() error {
	var missing []string
	if e.pod.Namespace == "" {
		missing = append(missing, "K8S_POD_NAMESPACE")
	}
	if e.pod.Name == "" {
		missing = append(missing, "K8S_POD_NAME")
	}
	if missing == nil {
		return nil
	}
	return agentapi.Errorf(agentapi.CodeInvalidEnvironment,
		"CNI_ARGS lacks %s: the runtime of a Kubernetes node sets it; by hand, export CNI_ARGS='K8S_POD_NAMESPACE=…;K8S_POD_NAME=…;K8S_POD_UID=…'",
		strings.Join(missing, " and "))
}

// remedyNoAnswer is the remedy when no answer came from the agent.
const remedyNoAnswer = "the runtime repeats the call; if this goes on, look at the agent of this node: " +
	"kubectl -n fenceline-system get pods -o wide"

// cniError returns the error that skel prints. An error of the agent keeps its code. Without an
// answer of the agent, STATUS has a code of its own in the CNI specification.
func cniError(verb, subject string, err error) error {
	if err == nil {
		return nil
	}
	sentence := func(text string) string { return fmt.Sprintf("fenceline %s%s: %s", verb, subject, text) }
	if decided, ok := errors.AsType[*agentapi.Error](err); ok {
		return types.NewError(decided.Code, sentence(decided.Msg), decided.Details)
	}
	if _, ok := errors.AsType[*agentapi.NoAnswerError](err); ok {
		code := agentapi.CodeTryAgainLater
		if verb == "STATUS" {
			code = agentapi.CodeNotAvailable
		}
		return types.NewError(code, sentence(err.Error()), remedyNoAnswer)
	}
	return types.NewError(agentapi.CodeInternal, sentence(err.Error()), "")
}
