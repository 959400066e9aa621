// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/hostlink/ruleset"
	"github.com/fenceline/fenceline/agent/journal"
)

const errNoDevice = unix.ENODEV

// ensureVeth makes the veth pair of an entry, guarded and with the node's end up. The pod's end stays
// down, so nothing passes before the guard judges.
func (l *Links) ensureVeth(e *journal.Entry, p *pod, plan Plan) (created bool, err error) {
	a := e.Attachment()
	name := NodeEnd(a)
	link, err := l.node.LinkByName(name)
	if isMissing(err) {
		created = true
		link, err = l.addVeth(e, p)
	}
	if err != nil {
		return created, fmt.Errorf("make link %s: %w", name, err)
	}
	if err := l.nodeNS.Do(func(ns.NetNS) error { return apply(ofNodeEnd(name, plan.hasIPv6())) }); err != nil {
		return created, err
	}
	if err := l.guard(e, name); err != nil {
		return created, err
	}
	if link.Attrs().Flags&unix.IFF_UP == 0 {
		if err := l.node.LinkSetUp(link); err != nil {
			return created, fmt.Errorf("set link %s up: %w", name, err)
		}
	}
	return created, nil
}

// guard guards the node's end. The guards of an earlier agent get the programs of this one.
func (l *Links) guard(e *journal.Entry, name string) error {
	guarded, err := l.Guards.LinkGuarded(e, name)
	if err != nil || guarded && l.renewed.Load() {
		return err
	}
	return l.Guards.GuardLink(e, name)
}

// addVeth adds the pair, both ends down.
func (l *Links) addVeth(e *journal.Entry, p *pod) (netlink.Link, error) {
	a := e.Attachment()
	nodeMAC, podMAC := macs(a)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = NodeEnd(a), nodeMAC, p.own.Attrs().MTU
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr = PodEnd(a), podMAC
	veth.PeerMTU = uint32(p.own.Attrs().MTU)
	veth.PeerNamespace = netlink.NsFd(int(p.ns.Fd()))
	if n := e.Routing.TxQueueLen; n > 0 {
		veth.TxQLen, veth.PeerTxQLen = n, n
	}
	if err := l.node.LinkAdd(veth); err != nil {
		if errors.Is(err, unix.EEXIST) {
			err = fmt.Errorf("the pod has another interface called %s: %w", veth.PeerName, err)
		}
		return nil, err
	}
	return l.node.LinkByName(veth.Name)
}

// putLink makes the pod's side of a host link. With known, routes that the plan lacks are removed.
func (p *pod) putLink(e *journal.Entry, plan Plan, known bool) error {
	a := e.Attachment()
	nodeMAC, _ := macs(a)
	link, err := p.links.LinkByName(PodEnd(a))
	if err != nil {
		return fmt.Errorf("look up the pod's end %s of the host link: %w", PodEnd(a), err)
	}
	if err := p.ns.Do(func(ns.NetNS) error { return apply(ofPodEnd(PodEnd(a), e.Interface, plan.hasIPv6())) }); err != nil {
		return err
	}
	marked, err := hasMark(p.links, link, plan.Mark)
	if err != nil {
		return err
	}
	if !marked {
		if err := putMark(p.links, link, plan.Mark); err != nil {
			return err
		}
	}
	if link.Attrs().Flags&unix.IFF_UP == 0 {
		if err := p.links.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up in the pod: %w", link.Attrs().Name, err)
		}
	}
	if err := p.doSockets(a, plan.Mark, ruleset.Ruleset.Ensure); err != nil {
		return err
	}
	if err := putEnds(p.links, link, plan.Ends); err != nil {
		return err
	}
	for _, via := range plan.NextHops {
		if err := putNeighbour(p.links, link, via, nodeMAC); err != nil {
			return err
		}
	}
	return syncRoutes(p.links, link, plan.Link, known)
}

// putNodeSide makes the node's side of a host link.
func (l *Links) putNodeSide(e *journal.Entry, plan Plan) error {
	a := e.Attachment()
	_, podMAC := macs(a)
	link, err := l.node.LinkByName(NodeEnd(a))
	if err != nil {
		return fmt.Errorf("look up %s: %w", NodeEnd(a), err)
	}
	for _, addr := range plan.OnNode {
		if err := putNeighbour(l.node, link, addr, podMAC); err != nil {
			return err
		}
	}
	return syncRoutes(l.node, link, l.nodeRoutes(plan), true)
}

// nodeRoutes returns the routes of the node to a pod. Their source is the preferred address of the Node
// object that the node has: a NAT may have given it another one, and the kernel refuses that.
func (l *Links) nodeRoutes(plan Plan) []Route {
	var routes []Route
	for _, addr := range plan.OnNode {
		r := Route{Dst: netip.PrefixFrom(addr, addr.BitLen()), Table: mainTable}
		for _, own := range l.NodeAddresses() {
			if own.Is4() == addr.Is4() && slices.Contains(plan.Behind, netip.PrefixFrom(own, own.BitLen())) {
				r.Src = own
				break
			}
		}
		routes = append(routes, r)
	}
	return routes
}
