// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// protocol marks our routes and rules (rtm_protocol). The kernel leaves numbers above 3 to user space.
const protocol = 70

// families are both families of addresses. A node without one of them has nothing of it.
var families = [...]int{unix.AF_INET, unix.AF_INET6}

// lacks reports whether a request failed because the kernel was started without IPv6.
func lacks(family int, err error) bool {
	return family == unix.AF_INET6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP))
}

// syncRoutes adds the wanted routes through a link. With prune it removes our other ones.
func syncRoutes(links *netlink.Handle, link netlink.Link, wanted []Route, prune bool, m mode) error {
	found, err := ownRoutes(links, link)
	if err != nil {
		return err
	}
	for _, r := range wanted {
		if slices.Contains(found, r) {
			continue
		}
		if m == look {
			return broken("route %s is missing", r.text(link))
		}
		if err := links.RouteReplace(r.through(link)); err != nil {
			return fmt.Errorf("add route %s: %w", r.text(link), err)
		}
	}
	if m == look || !prune {
		return nil
	}
	for _, r := range found {
		// A wanted route that differs in its source alone has replaced this one. The kernel does not
		// compare the source of an IPv6 route (ip6_route_del), so it would remove the wanted route.
		if slices.ContainsFunc(wanted, r.equalButSource) {
			continue
		}
		if err := r.remove(links, link); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the route. A missing route is no error.
func (r Route) remove(links *netlink.Handle, link netlink.Link) error {
	if err := links.RouteDel(r.through(link)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route %s: %w", r.text(link), err)
	}
	return nil
}

// equalButSource reports whether two routes are equal, without regard to their source.
func (r Route) equalButSource(o Route) bool {
	r.Src, o.Src = netip.Addr{}, netip.Addr{}
	return r == o
}

// ownRoutes returns our routes through a link, in all tables.
func ownRoutes(links *netlink.Handle, link netlink.Link) ([]Route, error) {
	var found []Route
	for _, family := range families {
		filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_UNSPEC, Protocol: protocol}
		routes, err := links.RouteListFiltered(family, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if lacks(family, err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the routes through %s: %w", link.Attrs().Name, err)
		}
		for i := range routes {
			found = append(found, routeOf(&routes[i], family))
		}
	}
	return found, nil
}

// routesBeyond returns the routes of others in the main table, through a link to hosts beyond it.
func routesBeyond(links *netlink.Handle, link netlink.Link) ([]Route, error) {
	return routesOfOthers(links, link, unix.RTPROT_KERNEL, unix.RTPROT_RA)
}

// routesOfOthers returns the routes through a link that are not ours, from the main table, without
// those of some protocols.
func routesOfOthers(links *netlink.Handle, link netlink.Link, without ...netlink.RouteProtocol) ([]Route, error) {
	var found []Route
	for _, family := range families {
		routes, err := routesThrough(links, link, family)
		if err != nil {
			return nil, err
		}
		for i := range routes {
			if r := &routes[i]; r.Protocol != protocol && !slices.Contains(without, r.Protocol) {
				found = append(found, routeOf(r, family))
			}
		}
	}
	return found, nil
}

// routesThrough returns the routes of a family through a link, from the main table. The kernel lists IPv6
// routes of one destination and metric through several links as one route with several next hops
// (rt6_fill_node); each of them can be removed by itself.
func routesThrough(links *netlink.Handle, link netlink.Link, family int) ([]netlink.Route, error) {
	all, err := links.RouteList(nil, family)
	if lacks(family, err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the routes through %s: %w", link.Attrs().Name, err)
	}
	var found []netlink.Route
	for _, r := range all {
		if r.LinkIndex == link.Attrs().Index {
			found = append(found, r)
		}
		for _, hop := range r.MultiPath {
			if hop.LinkIndex == link.Attrs().Index {
				one := r
				one.MultiPath, one.LinkIndex, one.Gw = nil, hop.LinkIndex, hop.Gw
				found = append(found, one)
			}
		}
	}
	return found, nil
}

func routeOf(r *netlink.Route, family int) Route {
	own := Route{Table: r.Table, Via: addrOf(r.Gw), Src: addrOf(r.Src), Local: r.Type == unix.RTN_LOCAL}
	switch {
	case r.Dst != nil:
		ones, _ := r.Dst.Mask.Size()
		own.Dst = netip.PrefixFrom(addrOf(r.Dst.IP), ones)
	case family == unix.AF_INET:
		own.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	default:
		own.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return own
}

// through returns the route for the kernel.
func (r Route) through(link netlink.Link) *netlink.Route {
	k := &netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: ipNet(r.Dst), Table: r.Table, Protocol: protocol,
		Scope: netlink.SCOPE_UNIVERSE,
	}
	if r.Src.IsValid() {
		k.Src = r.Src.AsSlice()
	}
	switch {
	case r.Local:
		k.Type, k.Scope = unix.RTN_LOCAL, netlink.SCOPE_HOST
	case r.Via.IsValid():
		k.Gw = r.Via.AsSlice()
		k.SetFlag(netlink.FLAG_ONLINK)
	case r.Dst.Addr().Is4():
		k.Scope = netlink.SCOPE_LINK
	}
	return k
}

func (r Route) text(link netlink.Link) string {
	text := r.Dst.String()
	if r.Via.IsValid() {
		text += " via " + r.Via.String()
	}
	return fmt.Sprintf("%s dev %s table %d", text, link.Attrs().Name, r.Table)
}

// isOf reports whether the rule is about the interface with that ifindex.
func (r Rule) isOf(index int) bool { return r.Table == ownTables+index || r.Table == replyTables+index }

// syncRules makes our rules about the interface with that ifindex the wanted ones.
func syncRules(links *netlink.Handle, wanted []Rule, index int, m mode) error {
	found, err := ownRules(links)
	if err != nil {
		return err
	}
	for _, r := range wanted {
		if slices.Contains(found, r) {
			continue
		}
		if m == look {
			return broken("rule %s is missing", r)
		}
		if err := links.RuleAdd(r.forKernel()); err != nil {
			return fmt.Errorf("add rule %s: %w", r, err)
		}
	}
	for _, r := range found {
		if m == look || slices.Contains(wanted, r) || !r.isOf(index) {
			continue
		}
		if err := links.RuleDel(r.forKernel()); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove rule %s: %w", r, err)
		}
	}
	return nil
}

// ownRules returns our rules.
func ownRules(links *netlink.Handle) ([]Rule, error) {
	var found []Rule
	for _, family := range families {
		rules, err := links.RuleList(family)
		if lacks(family, err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the rules of the pod: %w", err)
		}
		for _, r := range rules {
			if r.Protocol != protocol {
				continue
			}
			own := Rule{Priority: r.Priority, IPv6: family == unix.AF_INET6, Mark: r.Mark, Table: r.Table}
			if r.Src != nil {
				own.From = addrOf(r.Src.IP)
			}
			found = append(found, own)
		}
	}
	return found, nil
}

func (r Rule) forKernel() *netlink.Rule {
	k := netlink.NewRule()
	k.Priority, k.Table, k.Protocol, k.Family = r.Priority, r.Table, protocol, unix.AF_INET
	if r.IPv6 {
		k.Family = unix.AF_INET6
	}
	if r.Mark != 0 {
		k.Mark = r.Mark
		return k
	}
	k.Src = ipNet(netip.PrefixFrom(r.From, r.From.BitLen()))
	return k
}

// String returns the rule as ip-rule(8) writes it.
func (r Rule) String() string {
	if r.Mark != 0 {
		return fmt.Sprintf("%d: from all fwmark %#x lookup %d", r.Priority, r.Mark, r.Table)
	}
	return fmt.Sprintf("%d: from %s lookup %d", r.Priority, r.From, r.Table)
}

// putNeighbour makes a permanent entry, so that the link needs no ARP and no ND.
func putNeighbour(links *netlink.Handle, link netlink.Link, addr netip.Addr, mac net.HardwareAddr, m mode) error {
	if m == look {
		return checkNeighbour(links, link, addr, mac)
	}
	err := links.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("add neighbour %s with MAC %s on %s: %w", addr, mac, link.Attrs().Name, err)
	}
	return nil
}

// checkNeighbour returns an error unless the permanent entry is there.
func checkNeighbour(links *netlink.Handle, link netlink.Link, addr netip.Addr, mac net.HardwareAddr) error {
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	neighbours, err := links.NeighList(link.Attrs().Index, family)
	if err != nil {
		return fmt.Errorf("list the neighbours on %s: %w", link.Attrs().Name, err)
	}
	for _, n := range neighbours {
		if addrOf(n.IP) == addr && n.State == netlink.NUD_PERMANENT && n.HardwareAddr.String() == mac.String() {
			return nil
		}
	}
	return broken("neighbour %s with MAC %s is missing on %s", addr, mac, link.Attrs().Name)
}

// addrOf returns the zero Addr for no address.
func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
