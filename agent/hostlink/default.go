// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// takeDefault leaves the default routes of the pod to the interface of the entry. The default routes of
// each interface of another network move to a table of that interface, for frames from its addresses.
// The node and the Services (behind) stay where they were. The interfaces with one of the names in ours
// are Fenceline's: their default routes are in tables of their own already.
func (p *pod) takeDefault(behind []netip.Prefix, known bool, ours []string) error {
	all, err := p.links.LinkList()
	if err != nil {
		return fmt.Errorf("list the interfaces of the pod: %w", err)
	}
	for _, link := range all {
		if slices.Contains(ours, link.Attrs().Name) {
			continue
		}
		if err := p.moveDefault(link, behind, known); err != nil {
			return fmt.Errorf("move the default routes of interface %s: %w", link.Attrs().Name, err)
		}
	}
	return nil
}

// moveDefault moves the default routes of one interface. It has no effect on an interface without them.
func (p *pod) moveDefault(link netlink.Link, behind []netip.Prefix, known bool) error {
	table := ownTables + link.Attrs().Index
	beyond, err := routesBeyond(p.links, link)
	if err != nil {
		return err
	}
	ours, err := ownRoutes(p.links, link)
	if err != nil {
		return err
	}
	var gateways []netip.Addr
	for _, r := range slices.Concat(beyond, ours) {
		if r.Dst.Bits() == 0 && r.Via.IsValid() && !slices.Contains(gateways, r.Via) {
			gateways = append(gateways, r.Via)
		}
	}
	if len(gateways) == 0 {
		return nil
	}
	var routes []Route
	for _, gw := range gateways {
		routes = append(routes, Route{Dst: everything(gw), Via: gw, Table: table})
		for _, dst := range behind {
			if dst.Addr().Is4() == gw.Is4() {
				routes = append(routes, Route{Dst: dst, Via: gw, Table: mainTable})
			}
		}
	}
	subnets, rules, err := p.ofAddresses(link, table)
	if err != nil {
		return err
	}
	// The tables are complete before the main table loses a route.
	if err := syncRoutes(p.links, link, append(routes, subnets...), known); err != nil {
		return err
	}
	if err := syncRules(p.links, rules, ofInterface(link.Attrs().Index)); err != nil {
		return err
	}
	return p.removeDefault(link)
}

// ofAddresses returns the routes to the subnets of an interface, and the rules of its addresses.
func (p *pod) ofAddresses(link netlink.Link, table int) (subnets []Route, rules []Rule, err error) {
	addrs, err := p.links.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, nil, fmt.Errorf("list the addresses: %w", err)
	}
	for _, a := range addrs {
		addr := addrOf(a.IP)
		if addr.IsLinkLocalUnicast() {
			continue
		}
		ones, _ := a.Mask.Size()
		if subnet := netip.PrefixFrom(addr, ones).Masked(); !subnet.IsSingleIP() {
			subnets = append(subnets, Route{Dst: subnet, Src: addr, Table: table})
		}
		rules = append(rules, Rule{Priority: ownPriority, IPv6: addr.Is6(), From: addr, Table: table})
	}
	return subnets, rules, nil
}

// removeDefault removes the default routes through an interface from the main table.
func (p *pod) removeDefault(link netlink.Link) error {
	for _, family := range families {
		routes, err := p.links.RouteListFiltered(family, &netlink.Route{LinkIndex: link.Attrs().Index}, netlink.RT_FILTER_OIF)
		if lacks(family, err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list the routes: %w", err)
		}
		for i := range routes {
			if r := &routes[i]; routeOf(r, family).Dst.Bits() == 0 {
				if err := p.links.RouteDel(r); err != nil && !errors.Is(err, unix.ESRCH) {
					return fmt.Errorf("remove the default route: %w", err)
				}
			}
		}
	}
	return nil
}
