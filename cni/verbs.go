// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
)

// add gets addresses for a new interface. A chained call gets none: see addChained.
func (p plugin) add(ctx context.Context, c *call) error {
	if err := c.env.requirePod(); err != nil {
		return err
	}
	if err := c.conf.misplaced(); err != nil {
		return err
	}
	network, err := c.conf.addNetwork()
	if err != nil {
		return err
	}
	request := agentapi.AddRequest{
		Attachment: c.attachment(), NetNS: c.args.Netns, Pod: c.env.pod, Network: network, Chained: c.conf.chained(),
	}
	if request.Chained {
		return p.addChained(ctx, c, request)
	}
	if request.IPs, err = c.conf.requestedIPs(c.env); err != nil {
		return err
	}
	answer, err := c.client().Add(ctx, request)
	if err != nil {
		return err
	}
	r, err := result(answer)
	if err != nil {
		return err
	}
	return p.print(r, c.conf.CNIVersion)
}

// addChained has the interface of another plugin guarded and routed, and prints prevResult with the
// MAC that the interface has by now.
func (p plugin) addChained(ctx context.Context, c *call, request agentapi.AddRequest) error {
	previous, err := c.conf.previous()
	if err != nil {
		return err
	}
	request.Configured = configured(previous, c.args.IfName)
	if request.Routing, err = c.conf.routingConf.decode(); err != nil {
		return err
	}
	answer, err := c.client().Add(ctx, request)
	if err != nil {
		return err
	}
	setMAC(previous, c.args.IfName, answer.MAC)
	return p.print(previous, c.conf.CNIVersion)
}

// del releases the addresses of the attachment. An error of the agent does not fail it: the runtime
// would keep the pod, and the delegating plugin the link, which still uses the address. Instead the
// call waits in the spool until the agent carries it out.
func (p plugin) del(ctx context.Context, c *call) error {
	request := agentapi.DelRequest{
		Attachment: c.attachment(), NetNS: c.args.Netns, Pod: c.env.pod, Network: c.conf.network(), Chained: c.conf.chained(),
	}
	err := c.client().Del(ctx, request)
	if err == nil {
		return nil
	}
	// A chained DEL frees nothing. The DEL that frees follows from the plugin of the interface. Both
	// calls have the same file name in the spool. If this call were spooled, the agent might remove
	// the file of the other call with it.
	if request.Chained {
		fmt.Fprintf(p.stderr, "fenceline DEL%s: %v; a chained DEL frees nothing, so no further DEL is needed\n", c.subject(), err)
		return nil
	}
	if full := spool.Dir(c.conf.IPAM.Spool).Put(request); full != nil {
		return agentapi.Errorf(agentapi.CodeIOFailure, "%w; %w; the address stays in use until the runtime repeats DEL", err, full)
	}
	fmt.Fprintf(p.stderr, "fenceline DEL%s: %v; the call waits in %s until the agent carries it out\n", c.subject(), err, c.conf.IPAM.Spool)
	return nil
}

// check checks that the attachment still holds the addresses of prevResult.
func (p plugin) check(ctx context.Context, c *call) error {
	previous, err := c.conf.previous()
	if err != nil {
		return err
	}
	return c.client().Check(ctx, agentapi.CheckRequest{
		Attachment: c.attachment(), NetNS: c.args.Netns, Pod: c.env.pod, Network: c.conf.network(), Chained: c.conf.chained(),
		Configured: configured(previous, c.args.IfName),
	})
}

// gc releases the addresses of the network's attachments that the runtime no longer knows.
func (p plugin) gc(ctx context.Context, c *call) error {
	valid, err := c.conf.validAttachments()
	if err != nil {
		return err
	}
	return c.client().GC(ctx, agentapi.GCRequest{Network: c.conf.Name, Valid: valid})
}

// status checks that the agent is ready for ADD. If the agent was ready in this boot, status fails
// only after some time without an answer.
func (p plugin) status(ctx context.Context, c *call) error {
	err := c.client().Status(ctx)
	if err != nil && !isAbsence(err) {
		return err
	}
	forgiven, trouble := p.remember(c, err == nil)
	if trouble != nil {
		// Without its state STATUS reports the failure at once.
		fmt.Fprintf(p.stderr, "fenceline STATUS%s: %v\n", c.subject(), trouble)
		return err
	}
	if err != nil && forgiven {
		fmt.Fprintf(p.stderr, "fenceline STATUS%s: %v; STATUS fails once this has lasted for %s\n", c.subject(), err, c.conf.IPAM.grace)
		return nil
	}
	return err
}

// remember writes the new standing, and reports whether a failure is still forgiven.
func (p plugin) remember(c *call, serves bool) (forgiven bool, err error) {
	now, err := p.now()
	if err != nil {
		return false, err
	}
	file := standingOf(c.conf.IPAM.Socket)
	was, err := file.read()
	if err != nil {
		return false, err
	}
	next := standing{Boot: now.boot}
	if !serves {
		next, forgiven = was.afterFailure(now, c.conf.IPAM.grace)
	}
	if next != was {
		err = file.write(next)
	}
	return forgiven, err
}

// print writes a result in the version of the configuration.
func (p plugin) print(r *types100.Result, version string) error {
	converted, err := r.GetAsVersion(version)
	if err != nil {
		return fmt.Errorf("convert the result to CNI version %s: %w", version, err)
	}
	if err := converted.PrintTo(p.stdout); err != nil {
		return agentapi.Errorf(agentapi.CodeIOFailure, "write the result to stdout: %w", err)
	}
	return nil
}
