// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/agent/attachment"
)

// The next hops of the pod's routes. No host answers for these addresses: a permanent neighbour entry
// leads to the node's end. 169.254.255.0/24 is reserved (RFC 3927 section 2.1), so no host chooses the
// IPv4 one by itself.
var (
	nextHop4 = netip.MustParseAddr("169.254.255.1")
	nextHop6 = netip.MustParseAddr("fe80::fe:1")
)

// The addresses of the pod's end, equal in all pods and reserved as the next hops are. REDIRECT of
// netfilter, with which sidecars take over connections, sends a packet to the first address of the
// interface by which it came, and drops it if there is none. The pod's own address would not do: the
// kernel looks up the interface of a multicast sender by its address.
var (
	podEnd4 = netip.MustParseAddr("169.254.255.2")
	podEnd6 = netip.MustParseAddr("fe80::fe:2")
)

// Base numbers in the pod's network namespace. An interface adds its ifindex to them.
const (
	// ownTables and replyTables are the first numbers of routing tables.
	ownTables   = 1000
	replyTables = 2000
	// marks is the first mark of frames that came over a host link.
	marks = 0x464c0000
	// replyPriority and ownPriority are the priorities of the rules. A reply leaves as its request
	// came, so its rule is the first one after that of the local table.
	replyPriority = 100
	ownPriority   = 200
	mainTable     = 254 // RT_TABLE_MAIN
)

// Facts are the facts about one interface of a pod from which a plan is made.
type Facts struct {
	// Index is the ifindex of the interface in the pod.
	Index int
	// Addresses are the addresses of the interface that may be used, with the length of their
	// subnet. A fenced address is not among them.
	Addresses []netip.Prefix
	// Gateways are the gateways of these addresses, and Routes the routes of the pod through the
	// interface that lead to other hosts.
	Gateways []netip.Addr
	Routes   []Route
	// Tentative are the addresses whose duplicate address detection has not ended (RFC 4862). The
	// kernel refuses them as the source of a route.
	Tentative []netip.Addr
	// HostLink: the interface has a host link.
	HostLink bool
	// First: the routes through the host link are those of the whole pod. Otherwise they serve only
	// the addresses of this interface.
	First bool
	// OwnTable: frames from the addresses leave through this interface, by routes of its own.
	OwnTable bool
	// Node are the addresses of the node and of the load balancers that it serves, Services the service
	// CIDRs, and Listed further destinations behind the host link.
	Node             []netip.Addr
	Services, Listed []netip.Prefix
}

// Plan is the routing of one interface of a pod.
type Plan struct {
	// Link are the routes through the pod's end of the host link, Own those through the interface.
	Link, Own []Route
	Rules     []Rule
	// NextHops are the next hops that lead to the node's end.
	NextHops []netip.Addr
	// Ends are the addresses of the pod's end.
	Ends []netip.Addr
	// Mark is the mark of frames that came over the host link, 0 if there is none.
	Mark uint32
	// Behind are the destinations behind the host link. If another network made the first
	// interface, they are behind that interface.
	Behind []netip.Prefix
	// OnNode are the addresses that the node reaches through the host link.
	OnNode []netip.Addr
}

// Route is a route of the pod.
type Route struct {
	Dst netip.Prefix
	// Via is the zero Addr for a route on the link.
	Via netip.Addr
	// Src is the preferred source, the zero Addr if there is none.
	Src   netip.Addr
	Table int
	// Local: the destination is an address of the pod.
	Local bool
}

// Rule is a rule of the pod. It selects by Mark, or by From if Mark is 0.
type Rule struct {
	Priority int
	IPv6     bool
	Mark     uint32
	From     netip.Addr
	Table    int
}

// Make makes the plan of an interface.
func Make(f Facts) Plan {
	p := Plan{Behind: f.destinations()}
	if f.HostLink {
		p.addLink(f)
	}
	if f.OwnTable {
		p.addOwn(f)
	}
	for _, routes := range [][]Route{p.Link, p.Own} {
		for i, r := range routes {
			if slices.Contains(f.Tentative, r.Src) {
				routes[i].Src = netip.Addr{}
			}
		}
	}
	return p
}

// hasIPv4 and hasIPv6 report whether frames of the family use the host link.
func (p *Plan) hasIPv4() bool { return slices.Contains(p.NextHops, nextHop4) }
func (p *Plan) hasIPv6() bool { return slices.Contains(p.NextHops, nextHop6) }

// addLink adds the part of the host link.
func (p *Plan) addLink(f Facts) {
	p.Mark = marks + uint32(f.Index)
	var tables []int
	if f.First {
		tables = append(tables, mainTable)
	}
	if f.OwnTable {
		tables = append(tables, ownTables+f.Index)
	}
	for _, src := range sources(f.Addresses) {
		via, end := nextHop4, podEnd4
		if src.Is6() {
			via, end = nextHop6, podEnd6
		}
		for _, dst := range p.Behind {
			if dst.Addr().Is4() != src.Is4() {
				continue
			}
			for _, table := range tables {
				p.Link = append(p.Link, Route{Dst: dst, Via: via, Src: src, Table: table})
			}
		}
		p.Link = append(p.Link, Route{Dst: everything(src), Via: via, Table: replyTables + f.Index})
		p.Rules = append(p.Rules, Rule{Priority: replyPriority, IPv6: src.Is6(), Mark: p.Mark, Table: replyTables + f.Index})
		p.NextHops = append(p.NextHops, via)
		// The kernel takes no tentative address as a source, and would take this one instead.
		if slices.ContainsFunc(f.Addresses, func(a netip.Prefix) bool {
			return a.Addr().Is4() == src.Is4() && !slices.Contains(f.Tentative, a.Addr())
		}) {
			p.Ends = append(p.Ends, end)
		}
		if end.Is4() {
			// Only marked frames, those from the node, reach this address. In the local table, it
			// would be valid on all interfaces of the pod. IPv6 binds such an address to its link.
			p.Link = append(p.Link, Route{Dst: netip.PrefixFrom(end, end.BitLen()), Table: replyTables + f.Index, Local: true})
		}
	}
	for _, a := range f.Addresses {
		p.OnNode = append(p.OnNode, a.Addr())
	}
}

// destinations returns the destinations behind the host link, except the interface's own addresses.
// The local table serves these.
func (f Facts) destinations() []netip.Prefix {
	all := slices.Concat(f.Services, f.Listed)
	for _, a := range f.Node {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	all = slices.DeleteFunc(all, func(p netip.Prefix) bool {
		return p.IsSingleIP() && slices.ContainsFunc(f.Addresses, func(a netip.Prefix) bool { return a.Addr() == p.Addr() })
	})
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// addOwn adds the table of the interface: its subnets, its routes, and the rest through its gateways.
func (p *Plan) addOwn(f Facts) {
	table := ownTables + f.Index
	for _, a := range f.Addresses {
		p.Rules = append(p.Rules, Rule{Priority: ownPriority, IPv6: a.Addr().Is6(), From: a.Addr(), Table: table})
		p.addOnce(Route{Dst: a.Masked(), Src: a.Addr(), Table: table})
	}
	for _, r := range f.Routes {
		p.addOnce(Route{Dst: r.Dst, Via: r.Via, Table: table})
	}
	for _, gw := range f.Gateways {
		p.addOnce(Route{Dst: everything(gw), Via: gw, Table: table})
	}
}

// addOnce adds a route through the interface, unless the table has one to the destination.
func (p *Plan) addOnce(r Route) {
	if !slices.ContainsFunc(p.Own, func(o Route) bool { return o.Dst == r.Dst }) {
		p.Own = append(p.Own, r)
	}
}

// everything returns the destination of a default route of an address's family.
func everything(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 0).Masked() }

// sources returns the first address of each family.
func sources(addresses []netip.Prefix) []netip.Addr {
	var found []netip.Addr
	for _, a := range addresses {
		if !slices.ContainsFunc(found, func(s netip.Addr) bool { return s.Is4() == a.Addr().Is4() }) {
			found = append(found, a.Addr())
		}
	}
	return found
}

// overlap returns ErrOverlap if a route through the host link would take over frames to the subnet.
func overlap(r *attachment.Routing, services []netip.Prefix) error {
	if !r.HostLink {
		return nil
	}
	for _, subnet := range r.Subnets {
		subnet = subnet.Masked()
		for _, s := range services {
			if s.Overlaps(subnet) {
				return fmt.Errorf("%w: service CIDR %s and subnet %s overlap; give the pool another subnet, or set \"hostLink\" to false", ErrOverlap, s, subnet)
			}
		}
		for _, listed := range r.Listed {
			// A longer prefix of the subnet itself takes over a part of it. A shorter one is fine: the
			// route of the subnet is more specific.
			if listed.Bits() >= subnet.Bits() && listed.Overlaps(subnet) {
				return fmt.Errorf("%w: \"hostLinkCIDRs\" has %s, and the subnet is %s; remove it from the list", ErrOverlap, listed, subnet)
			}
		}
	}
	return nil
}
