// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"fmt"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/hostlink/ruleset"
	"github.com/fenceline/fenceline/agent/journal"
)

// Check returns an error that wraps ErrBroken or ErrGone and names the first thing that is wrong with
// an entry's interface or its routing.
func (l *Links) Check(e *journal.Entry) error {
	p, err := openPod(e)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.checkInterface(e); err != nil || e.Routing == nil {
		return err
	}
	node, err := l.nodeAddresses()
	if err != nil {
		return err
	}
	plan, _, err := l.plan(e, p, node)
	if err != nil {
		return err
	}
	if e.Routing.HostLink {
		if err := l.checkNodeSide(e, plan); err != nil {
			return err
		}
		if err := p.checkLink(e, plan); err != nil {
			return err
		}
	}
	if err := checkRoutes(p.links, p.own, plan.Own); err != nil {
		return err
	}
	return checkRules(p.links, plan.Rules)
}

// checkInterface checks the interface of the entry: up, its MAC, its addresses.
func (p *pod) checkInterface(e *journal.Entry) error {
	attrs := p.own.Attrs()
	if attrs.RawFlags&unix.IFF_UP == 0 {
		return fmt.Errorf("%w: interface %s is down", ErrBroken, e.Interface)
	}
	if attrs.HardwareAddr.String() != e.MAC {
		return fmt.Errorf("%w: interface %s has MAC %s, and its lease has %s", ErrBroken, e.Interface, attrs.HardwareAddr, e.MAC)
	}
	addrs, err := p.links.AddrList(p.own, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list the addresses of interface %s: %w", e.Interface, err)
	}
	for _, address := range e.Addresses {
		if !hasAddress(addrs, address.Addr) {
			return fmt.Errorf("%w: interface %s does not have %s", ErrBroken, e.Interface, address.Addr)
		}
	}
	return nil
}

func hasAddress(addrs []netlink.Addr, addr netip.Addr) bool {
	for _, a := range addrs {
		if addrOf(a.IP) == addr {
			return true
		}
	}
	return false
}

// checkNodeSide checks the node's side of a host link.
func (l *Links) checkNodeSide(e *journal.Entry, plan Plan) error {
	a := e.Attachment()
	_, podMAC := macs(a)
	link, err := upLink(l.node, NodeEnd(a))
	if err != nil {
		return err
	}
	guarded, err := l.Guards.LinkGuarded(e, NodeEnd(a))
	if err != nil {
		return err
	}
	if !guarded {
		return fmt.Errorf("%w: link %s is not guarded", ErrBroken, NodeEnd(a))
	}
	if err := l.nodeNS.Do(func(ns.NetNS) error { return check(ofNodeEnd(NodeEnd(a), plan.hasIPv6())) }); err != nil {
		return err
	}
	for _, addr := range plan.OnNode {
		if err := checkNeighbour(l.node, link, addr, podMAC); err != nil {
			return err
		}
	}
	return checkRoutes(l.node, link, l.nodeRoutes(plan))
}

// checkLink checks the pod's side of a host link.
func (p *pod) checkLink(e *journal.Entry, plan Plan) error {
	a := e.Attachment()
	nodeMAC, _ := macs(a)
	link, err := upLink(p.links, PodEnd(a))
	if err != nil {
		return err
	}
	if err := p.ns.Do(func(ns.NetNS) error { return check(ofPodEnd(PodEnd(a), e.Interface, plan.hasIPv6())) }); err != nil {
		return err
	}
	marked, err := hasMark(p.links, link, plan.Mark)
	if err != nil {
		return err
	}
	if !marked {
		return fmt.Errorf("%w: %s does not mark its frames", ErrBroken, PodEnd(a))
	}
	if err := p.doSockets(a, plan.Mark, ruleset.Ruleset.Check); err != nil {
		return err
	}
	if err := checkEnds(p.links, link, plan.Ends); err != nil {
		return err
	}
	for _, via := range plan.NextHops {
		if err := checkNeighbour(p.links, link, via, nodeMAC); err != nil {
			return err
		}
	}
	return checkRoutes(p.links, link, plan.Link)
}

// upLink returns a link that must be there and up.
func upLink(links *netlink.Handle, name string) (netlink.Link, error) {
	link, err := links.LinkByName(name)
	switch {
	case isMissing(err):
		return nil, fmt.Errorf("%w: link %s is missing", ErrBroken, name)
	case err != nil:
		return nil, fmt.Errorf("look up link %s: %w", name, err)
	case link.Attrs().RawFlags&unix.IFF_UP == 0:
		return nil, fmt.Errorf("%w: link %s is down", ErrBroken, name)
	}
	return link, nil
}
