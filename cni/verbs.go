package main

import (
	"context"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
)

// add gets addresses for a new interface. Chained, it has the leased ones among
// its addresses guarded and passes prevResult on.
func (p plugin) add(ctx context.Context, c *call) error {
	if err := c.env.requirePod(); err != nil {
		return err
	}
	request := agentapi.AddRequest{
		Attachment: c.attachment(),
		NetNS:      c.args.Netns,
		Pod:        c.env.pod,
		Network:    c.conf.network(),
		Chained:    c.conf.chained(),
	}
	if !request.Chained {
		var err error
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
	previous, err := c.conf.previous()
	if err != nil {
		return err
	}
	request.Configured = configured(previous, c.args.IfName)
	if _, err := c.client().Add(ctx, request); err != nil {
		return err
	}
	return p.print(previous, c.conf.CNIVersion)
}

// del gives back what the attachment holds. It never fails because the agent
// is away or in trouble: the runtime would keep the pod, and the delegating
// plugin the link, which is what still speaks for the address. Without an
// answer the call waits in the spool until the agent carries it out.
func (p plugin) del(ctx context.Context, c *call) error {
	request := agentapi.DelRequest{
		Attachment: c.attachment(),
		NetNS:      c.args.Netns,
		Pod:        c.env.pod,
		Network:    c.conf.network(),
		Chained:    c.conf.chained(),
	}
	err := c.client().Del(ctx, request)
	if err == nil {
		return nil
	}
	// Chained, it frees nothing: the DEL of the interface's IPAM does, and follows.
	// One file is both of theirs, and the agent might remove that one for this.
	if request.Chained {
		fmt.Fprintf(p.stderr, "fenceline DEL%s: %v; chained, nothing is left to be done\n", c.subject(), err)
		return nil
	}
	if full := spool.Dir(c.conf.IPAM.Spool).Put(request); full != nil {
		return agentapi.Errorf(agentapi.CodeIOFailure,
			"%w; and it could not be spooled for later: %w; the address stays in use until DEL is repeated", err, full)
	}
	fmt.Fprintf(p.stderr, "fenceline DEL%s: %v; spooled in %s, the agent will carry it out\n",
		c.subject(), err, c.conf.IPAM.Spool)
	return nil
}

// check asks whether the attachment still holds what prevResult says.
func (p plugin) check(ctx context.Context, c *call) error {
	previous, err := c.conf.previous()
	if err != nil {
		return err
	}
	return c.client().Check(ctx, agentapi.CheckRequest{
		Attachment: c.attachment(),
		NetNS:      c.args.Netns,
		Pod:        c.env.pod,
		Network:    c.conf.network(),
		Chained:    c.conf.chained(),
		Configured: configured(previous, c.args.IfName),
	})
}

// gc gives back what attachments of the network hold that the runtime does not know any more.
func (p plugin) gc(ctx context.Context, c *call) error {
	valid, err := c.conf.validAttachments()
	if err != nil {
		return err
	}
	return c.client().GC(ctx, agentapi.GCRequest{Network: c.conf.Name, Valid: valid})
}

// status asks whether ADD would be served. Of an agent that has served in this
// boot and is away it says so only after some time.
func (p plugin) status(ctx context.Context, c *call) error {
	err := c.client().Status(ctx)
	if err != nil && !isAbsence(err) {
		return err
	}
	forgiven, trouble := p.remember(c, err == nil)
	if trouble != nil {
		// Without its memory STATUS tells what is.
		fmt.Fprintf(p.stderr, "fenceline STATUS%s: %v\n", c.subject(), trouble)
		return err
	}
	if err != nil && forgiven {
		fmt.Fprintf(p.stderr, "fenceline STATUS%s: %v; this is told as an error once it has lasted for %s\n", c.subject(), err, c.conf.IPAM.grace)
		return nil
	}
	return err
}

// remember notes whether the agent serves, and tells whether it is forgiven that it does not.
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
	if next == was {
		return forgiven, nil
	}
	return forgiven, file.write(next)
}

// print writes a result in the version that the configuration asks for.
func (p plugin) print(r *types100.Result, version string) error {
	converted, err := r.GetAsVersion(version)
	if err != nil {
		return fmt.Errorf("convert the result to CNI version %s: %w", version, err)
	}
	if err := converted.PrintTo(p.stdout); err != nil {
		return agentapi.Errorf(agentapi.CodeIOFailure, "write the result: %w", err)
	}
	return nil
}
