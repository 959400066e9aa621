// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/agent/attachment"
)

// Read returns the routing of an entry's interface as Make has left it in the pod, or nil if there
// is none. It is for a journal that was lost. Listed has all destinations behind the host link,
// also those of the node and the Services.
func (l *Links) Read(e *attachment.Entry) (*attachment.Routing, error) {
	p, err := openPod(e)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r := &attachment.Routing{}
	if err := errors.Join(p.readLink(e, r), p.readOwn(e, r)); err != nil {
		return nil, fmt.Errorf("read the routing of interface %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err)
	}
	if !r.HostLink && !r.OwnTable {
		return nil, nil
	}
	return r, nil
}

// readLink reads what leads through the host link.
func (p *pod) readLink(e *attachment.Entry, r *attachment.Routing) error {
	end, err := p.links.LinkByName(PodEnd(e.Attachment()))
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r.HostLink = true
	routes, err := ownRoutes(p.links, end)
	for _, route := range routes {
		if route.Table == replyTables+p.own.Attrs().Index {
			continue
		}
		r.First = r.First || route.Table == mainTable
		if !slices.Contains(r.Listed, route.Dst) {
			r.Listed = append(r.Listed, route.Dst)
		}
	}
	return err
}

// readOwn reads what leads through the interface itself.
func (p *pod) readOwn(e *attachment.Entry, r *attachment.Routing) error {
	rules, err := ownRules(p.links)
	if err != nil {
		return err
	}
	table := ownTables + p.own.Attrs().Index
	r.OwnTable = slices.ContainsFunc(rules, func(rule Rule) bool { return rule.Table == table })
	addrs, err := p.links.AddrList(p.own, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list the addresses of interface %s: %w", e.Interface, err)
	}
	for _, a := range addrs {
		addr := addrOf(a.IP)
		if bits, _ := a.Mask.Size(); slices.ContainsFunc(e.Addresses, func(held attachment.Address) bool { return held.Addr == addr }) {
			r.Subnets = append(r.Subnets, netip.PrefixFrom(addr, bits))
		}
	}
	beyond, err := routesBeyond(p.links, p.own)
	own, ownErr := ownRoutes(p.links, p.own)
	r.Gateways = gatewaysOf(slices.Concat(beyond, own))
	return errors.Join(err, ownErr)
}
