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

	"github.com/fenceline/fenceline/agent/attachment"
)

// putNodeEnd makes the veth pair of an entry, guarded and with the node's end up. The pod's end stays
// down, so nothing passes before the guard judges.
func (l *Links) putNodeEnd(e *attachment.Entry, p *pod, plan Plan, m mode) (created bool, err error) {
	name := NodeEnd(e.Attachment())
	link, err := linkOf(l.node, name)
	if errors.Is(err, ErrBroken) && m == mend {
		created = true
		link, err = l.addVeth(e, p)
	}
	if err != nil {
		return created, err
	}
	if err := l.nodeNS.Do(func(ns.NetNS) error { return putSettings(ofNodeEnd(name, plan.hasIPv6()), m) }); err != nil {
		return created, err
	}
	if err := l.guard(e, name, m); err != nil {
		return created, err
	}
	if err := setUp(l.node, link, m); err != nil || !plan.hasIPv4() {
		return created, err
	}
	// On an interface without an address, the kernel checks sources strictly (fib_validate_source), also
	// those of a virtual address of the pod.
	return created, putAddresses(l.node, link, []netip.Addr{nextHop4}, m)
}

// linkOf returns a link that must be there.
func linkOf(links *netlink.Handle, name string) (netlink.Link, error) {
	link, err := links.LinkByName(name)
	if isMissing(err) {
		return nil, broken("link %s is missing", name)
	}
	if err != nil {
		return nil, fmt.Errorf("look up link %s: %w", name, err)
	}
	return link, nil
}

func setUp(links *netlink.Handle, link netlink.Link, m mode) error {
	name := link.Attrs().Name
	if link.Attrs().RawFlags&unix.IFF_UP != 0 {
		return nil
	}
	if m == look {
		return broken("link %s is down", name)
	}
	if err := links.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}

// guard guards the node's end. The guards of an earlier agent get the programs of this one.
func (l *Links) guard(e *attachment.Entry, name string, m mode) error {
	guarded, err := l.Guards.LinkGuarded(e, name)
	switch {
	case err != nil:
		return err
	case m == look && !guarded:
		return broken("link %s is not guarded", name)
	case m == look, guarded && l.renewed.Load():
		return nil
	}
	return l.Guards.GuardLink(e, name)
}

// addVeth adds the pair, both ends down.
func (l *Links) addVeth(e *attachment.Entry, p *pod) (netlink.Link, error) {
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
		return nil, fmt.Errorf("make link %s: %w", veth.Name, err)
	}
	return linkOf(l.node, veth.Name)
}

// putLink makes the pod's side of a host link. With known, routes that the plan lacks are removed.
func (p *pod) putLink(e *attachment.Entry, plan Plan, known bool, m mode) error {
	a := e.Attachment()
	nodeMAC, _ := macs(a)
	link, err := linkOf(p.links, PodEnd(a))
	if err != nil {
		return err
	}
	if err := p.ns.Do(func(ns.NetNS) error { return putSettings(ofPodEnd(PodEnd(a), e.Interface, plan.hasIPv6()), m) }); err != nil {
		return err
	}
	marked, err := hasMark(p.links, link, plan.Mark)
	switch {
	case err != nil || marked:
	case m == look:
		err = broken("%s does not mark its frames", PodEnd(a))
	default:
		err = putMark(p.links, link, plan.Mark)
	}
	if err != nil {
		return err
	}
	if err := setUp(p.links, link, m); err != nil {
		return err
	}
	if err := p.putSockets(a, plan.Mark, m); err != nil {
		return err
	}
	if err := putEnds(p.links, link, plan.Ends, m); err != nil {
		return err
	}
	for _, via := range plan.NextHops {
		if err := putNeighbour(p.links, link, via, nodeMAC, m); err != nil {
			return err
		}
	}
	return syncRoutes(p.links, link, plan.Link, known, m)
}

// putNodeSide makes the routes of the node to a pod.
func (l *Links) putNodeSide(e *attachment.Entry, plan Plan, m mode) error {
	a := e.Attachment()
	_, podMAC := macs(a)
	link, err := linkOf(l.node, NodeEnd(a))
	if err != nil {
		return err
	}
	for _, addr := range plan.OnNode {
		if err := putNeighbour(l.node, link, addr, podMAC, m); err != nil {
			return err
		}
	}
	return syncRoutes(l.node, link, nodeRoutes(plan, l.NodeAddresses()), true, m)
}

// nodeRoutes returns the routes of the node to a pod. Their source is the preferred address of the Node
// object that the node has: a NAT may have given it another one, and the kernel refuses that.
func nodeRoutes(plan Plan, node []netip.Addr) []Route {
	var routes []Route
	for _, addr := range plan.OnNode {
		r := Route{Dst: netip.PrefixFrom(addr, addr.BitLen()), Table: mainTable}
		for _, own := range node {
			if own.Is4() == addr.Is4() && slices.Contains(plan.Behind, netip.PrefixFrom(own, own.BitLen())) {
				r.Src = own
				break
			}
		}
		routes = append(routes, r)
	}
	return routes
}

// putEnds gives the pod's end of a host link its addresses. The kernel must neither choose nor
// announce them: the IPv4 one has the scope host, no program sends multicast there, and without ND
// the IPv6 one joins no group.
func putEnds(links *netlink.Handle, link netlink.Link, ends []netip.Addr, m mode) error {
	name := link.Attrs().Name
	if link.Attrs().RawFlags&(unix.IFF_NOARP|unix.IFF_MULTICAST) != unix.IFF_NOARP {
		if m == look {
			return broken("%s has ARP or multicast", name)
		}
		// With ARP off, the kernel forgets the neighbours of the link.
		if err := errors.Join(links.LinkSetARPOff(link), links.LinkSetMulticastOff(link)); err != nil {
			return fmt.Errorf("set ARP and multicast off on %s: %w", name, err)
		}
	}
	return putAddresses(links, link, ends, m)
}

// putAddresses gives an end of a host link addresses that are valid nowhere: not in the local table.
func putAddresses(links *netlink.Handle, link netlink.Link, ends []netip.Addr, m mode) error {
	name := link.Attrs().Name
	found, err := links.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", name, err)
	}
	for _, end := range ends {
		if !hasAddress(found, end) {
			if m == look {
				return broken("%s does not have %s", name, end)
			}
			a := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(end, end.BitLen())), Scope: unix.RT_SCOPE_HOST, Flags: unix.IFA_F_NODAD}
			if err := links.AddrReplace(link, a); err != nil {
				return fmt.Errorf("add %s to %s: %w", end, name, err)
			}
		}
		if m == mend && end.Is4() { // the kernel adds this route with the address, and when the link goes up
			local := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(end, end.BitLen())), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST}
			if err := links.RouteDel(local); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("remove %s from the local table: %w", end, err)
			}
		}
	}
	return nil
}
