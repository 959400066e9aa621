// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// takeDefault leaves the default routes of the pod to the interface of the entry. The default routes of
// each interface of another network move to a table of that interface, for frames from its addresses.
// The routes to the node and the Services (behind), and to the pods of other networks, stay as they are.
// The interfaces with a name in ours are Fenceline's: their default routes have tables of their own already.
func (p *pod) takeDefault(behind, pods []netip.Prefix, known bool, ours []string) error {
	all, err := wholelist.Of(p.links.LinkList)
	if err != nil {
		return fmt.Errorf("list the interfaces of the pod: %w", err)
	}
	for _, link := range all {
		if slices.Contains(ours, link.Attrs().Name) {
			continue
		}
		if err := p.moveDefault(link, behind, pods, known); err != nil {
			return fmt.Errorf("move the default routes of interface %s: %w", link.Attrs().Name, err)
		}
	}
	return nil
}

// moveDefault moves the default routes of one interface. It has no effect on an interface without them.
func (p *pod) moveDefault(link netlink.Link, behind, pods []netip.Prefix, known bool) error {
	table := ownTables + link.Attrs().Index
	others, err := routesOfOthers(p.links, link, unix.RTPROT_RA)
	if err != nil {
		return err
	}
	ours, err := ownRoutes(p.links, link)
	if err != nil {
		return err
	}
	gateways := gatewaysOf(slices.Concat(others, ours))
	if len(gateways) == 0 {
		return nil
	}
	var routes []Route
	for _, gw := range gateways {
		routes = append(routes, Route{Dst: everything(gw), Via: gw, Table: table})
		for _, dst := range slices.Concat(behind, unrouted(pods, others)) {
			if dst.Addr().Is4() == gw.Is4() {
				routes = append(routes, Route{Dst: dst, Via: gw, Table: mainTable})
			}
		}
	}
	rules, err := p.ofAddresses(link, table)
	if err != nil {
		return err
	}
	// The tables are complete before the main table loses a route.
	if err := syncRoutes(p.links, link, append(routes, inTable(others, table)...), known, mend); err != nil {
		return err
	}
	if err := syncRules(p.links, rules, link.Attrs().Index, mend); err != nil {
		return err
	}
	return p.removeDefault(link)
}

// gatewaysOf returns the gateways of default routes, each once.
func gatewaysOf(routes []Route) (gateways []netip.Addr) {
	for _, r := range routes {
		if r.Dst.Bits() == 0 && r.Via.IsValid() && !slices.Contains(gateways, r.Via) {
			gateways = append(gateways, r.Via)
		}
	}
	return gateways
}

// unrouted returns the destinations to which others has only the default route. A more specific
// route of that network leads to the right place already.
func unrouted(destinations []netip.Prefix, others []Route) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(destinations), func(dst netip.Prefix) bool {
		return slices.ContainsFunc(others, func(r Route) bool {
			return r.Dst.Bits() > 0 && r.Dst.Bits() <= dst.Bits() && r.Dst.Contains(dst.Addr())
		})
	})
}

// besides returns the destinations outside the subnets. A route inside one would divert its frames.
func besides(destinations, subnets []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(destinations), func(dst netip.Prefix) bool {
		return slices.ContainsFunc(subnets, func(s netip.Prefix) bool {
			return dst.Bits() >= s.Bits() && s.Overlaps(dst)
		})
	})
}

// inTable returns the routes for a table: all except default routes and those to link-local
// addresses. The routes to the subnets may have a gateway too: the neighbours of a veth pair are
// not on the link.
func inTable(others []Route, table int) []Route {
	var routes []Route
	for _, r := range others {
		if r.Dst.Bits() > 0 && !r.Dst.Addr().IsLinkLocalUnicast() {
			r.Table = table
			routes = append(routes, r)
		}
	}
	return routes
}

// ofAddresses returns the rules of the addresses of an interface.
func (p *pod) ofAddresses(link netlink.Link, table int) ([]Rule, error) {
	addrs, err := p.links.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses: %w", err)
	}
	var rules []Rule
	for _, a := range addrs {
		if addr := addrOf(a.IP); !addr.IsLinkLocalUnicast() {
			rules = append(rules, Rule{Priority: ownPriority, IPv6: addr.Is6(), From: addr, Table: table})
		}
	}
	return rules, nil
}

// removeDefault removes the default routes through an interface from the main table.
func (p *pod) removeDefault(link netlink.Link) error {
	for _, family := range families {
		routes, err := routesThrough(p.links, link, family)
		if err != nil {
			return err
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
