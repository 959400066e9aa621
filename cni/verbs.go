// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
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

// result returns the agent's answer as the abbreviated result of an IPAM plugin. It has no
// interfaces, and its ips name none (CNI specification, section 5).
func result(answer *agentapi.AddResponse) (*types100.Result, error) {
	if len(answer.IPs) == 0 {
		return nil, agentapi.Errorf(agentapi.CodeInternal, "read the agent's answer: it has no address; are plugin and agent of the same release?")
	}
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for _, ip := range answer.IPs {
		if !ip.Address.IsValid() {
			return nil, agentapi.Errorf(agentapi.CodeInternal, "read the agent's answer: an address is missing; are plugin and agent of the same release?")
		}
		r.IPs = append(r.IPs, &types100.IPConfig{Address: ipNet(ip.Address), Gateway: ip.Gateway.AsSlice()})
	}
	for _, route := range answer.Routes {
		if !route.Dst.IsValid() {
			return nil, agentapi.Errorf(agentapi.CodeInternal, "read the agent's answer: a route has no destination; are plugin and agent of the same release?")
		}
		r.Routes = append(r.Routes, &types.Route{Dst: ipNet(route.Dst.Masked()), GW: route.GW.AsSlice()})
	}
	return r, nil
}

// configured returns the addresses of the interface with that name inside the container, and those
// that name no interface: some plugins leave the index out of version 0.3.1 results.
func configured(r *types100.Result, ifname string) []agentapi.ConfiguredAddress {
	var found []agentapi.ConfiguredAddress
	for _, ip := range r.IPs {
		c := agentapi.ConfiguredAddress{Address: prefix(ip.Address), Gateway: addr(ip.Gateway)}
		if ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(r.Interfaces) {
			i := r.Interfaces[*ip.Interface]
			if i.Name != ifname || i.Sandbox == "" {
				continue
			}
			c.Interface, c.MAC = i.Name, i.Mac
		}
		if c.Address.IsValid() {
			found = append(found, c)
		}
	}
	return found
}

// setMAC records the MAC of the interface with that name inside the container. An IPAM plugin may give
// the interface another MAC than the plugin that made it has recorded, and its CHECK compares.
func setMAC(r *types100.Result, ifname, mac string) {
	for _, i := range r.Interfaces {
		if mac != "" && i.Name == ifname && i.Sandbox != "" {
			i.Mac = mac
		}
	}
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// addr returns the zero Addr for no address.
func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefix(n net.IPNet) netip.Prefix {
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr(n.IP), bits)
}
