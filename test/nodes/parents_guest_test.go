// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package nodes_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// parentRow is a kind of parent, or what happens to one.
type parentRow struct {
	name string
	mode string // of the macvlan, bridge if it is empty
	// build makes the parent from a cable that is plugged into the port of the role. If tagged is set,
	// it also makes the client's interface.
	build  func(t *testing.T, l network.LAN, host *network.Namespace, role, cable string) (parent string)
	tagged bool
	// happens changes the parent of the first node while a client talks to the pod, and returns the
	// parent's name. If lost is set, the pod loses its interface.
	happens func(t *testing.T, l network.LAN, host *network.Namespace, role, parent string) string
	lost    bool
}

func parentRows() []parentRow {
	return []parentRow{
		{name: "bond active-backup", build: bond(netlink.BOND_MODE_ACTIVE_BACKUP), happens: failOver},
		{name: "bond 802.3ad", build: bond(netlink.BOND_MODE_802_3AD), happens: failOver},
		{name: "bond balance-xor", build: bond(netlink.BOND_MODE_BALANCE_XOR), happens: failOver},
		{name: "QinQ", build: qinq, tagged: true},
		{name: "bridge", build: bridged},
		{name: "private", mode: "private"},
		{name: "vepa", mode: "vepa"},
		{name: "passthru", mode: "passthru"},
		{name: "down and up", happens: downAndUp},
		{name: "renamed", happens: renamed},
		{name: "made again", happens: madeAgain, lost: true},
	}
}

// A pod on a parent of each kind talks to a host, and sends only as itself. Its address is taken while
// the agent of its node is dead. The pod is fenced, and the next pod on the other node has the address.
func TestGuestPodsOnEachKindOfParent(t *testing.T) {
	c, lan := newInGuest(t)
	c.StartController()
	dark, whole := c.Nodes[0], t
	var all []*onParent
	for i, row := range parentRows() {
		t.Run(row.name, func(t *testing.T) {
			p := &onParent{parentRow: row, Cluster: c, lan: lan, number: i, host: network.New(whole, fmt.Sprintf("h-%d", i))}
			p.begin(t)
			if row.happens != nil {
				p.survive(t)
			}
			mute(t, p.pod, p.client)
			all = append(all, p)
		})
	}
	dark.ShutAPI(true)
	check.OK(t, dark.Fall(t.Context()))
	for _, p := range all {
		check.OK(t, p.pod.Outlive(t.Context()))
	}
	for _, p := range all {
		t.Run(p.name+", fenced", func(t *testing.T) {
			p.next = p.attach(t, c.Nodes[1], p.other)
			check.Equal(t, p.next.Addr, p.pod.Addr, "the next pod has")
			c.Eventually(t, "the take-over was fenced", func() error { return saidFenced(t.Context(), c, p.next) })
			mute(t, p.pod, p.pod.Addr)
			p.talk(t, p.next)
		})
	}
	dark.ShutAPI(false)
	check.OK(t, dark.Rise(t.Context()))
	for _, p := range all {
		for _, s := range []*nodes.Sandbox{p.pod, p.next} {
			if s != nil {
				check.OK(t, s.Finish(t.Context()))
			}
		}
	}
	c.Eventually(t, "all is given back", func() error { return c.LeasesAreLiving(t.Context()) })
}

// onParent is a row on its two parents, with a pod on the first node and a client on their segment.
type onParent struct {
	parentRow
	*nodes.Cluster
	lan           network.LAN
	number        int
	parent, other string // of the two nodes
	host          *network.Namespace
	client        netip.Addr
	pod, next     *nodes.Sandbox
}

func (p *onParent) cable() string           { return fmt.Sprintf("e%d", p.number) }
func (p *onParent) role(node string) string { return fmt.Sprintf("%s-%d", node, p.number) }
func (p *onParent) pool() string            { return fmt.Sprintf("row%d", p.number) }

// begin makes the parents, the client, the pool of one address, and the pod.
func (p *onParent) begin(t *testing.T) {
	t.Helper()
	plug := func(host *network.Namespace, role string, build bool) string {
		check.OK(t, host.Plug(p.cable(), nil, p.lan.Switch, network.Port(role), network.Bridge))
		if !build {
			return p.cable()
		}
		return p.build(t, p.lan, host, role, p.cable())
	}
	p.parent = plug(p.Nodes[0].Namespace, p.role("n1"), p.build != nil)
	p.other = plug(p.Nodes[1].Namespace, p.role("n2"), p.build != nil)
	p.client = netip.AddrFrom4([4]byte{10, 70, byte(p.number), 1})
	own := plug(p.host, p.role("h"), p.tagged)
	check.OK(t, p.host.AddAddr(own, netip.PrefixFrom(p.client, 24)))
	pool := p.NamedPool(p.pool(), netip.PrefixFrom(p.client, 24).Masked().String(), fmt.Sprintf("10.70.%d.20", p.number))
	edit(t.Context(), t, p.Cluster, pool, func() { pool.Spec.Parents = []string{p.parent} })
	for _, n := range p.Nodes {
		vf.AwaitCarrier(t, n.Namespace, p.parent)
	}
	p.pod = p.attach(t, p.Nodes[0], p.parent)
	p.talk(t, p.pod)
}

func (p *onParent) attach(t *testing.T, n *nodes.Node, parent string) *nodes.Sandbox {
	t.Helper()
	mode := p.mode
	if mode == "" {
		mode = "bridge"
	}
	name := fmt.Sprintf("pod%d-%d", p.number, time.Now().UnixNano())
	s := attached(t, n, name, fmt.Sprintf(`"type":"macvlan","mode":%q,"master":%q`, mode, parent), nodes.Wants(p.pool()))
	s.Echo(t, "tcp", p.at(s))
	return s
}

func (p *onParent) at(s *nodes.Sandbox) netip.AddrPort { return netip.AddrPortFrom(s.Addr, 8080) }

// talk has the client talk to a pod.
func (p *onParent) talk(t *testing.T, s *nodes.Sandbox) {
	t.Helper()
	knows(t, "the client", p.host, netip.Addr{}, "tcp", p.at(s), p.client)
}

// survive changes the parent while a connection is open. The connection stays open if the pod keeps
// its interface. Then another pod takes its place.
func (p *onParent) survive(t *testing.T) {
	t.Helper()
	c := check.Value(p.host.Connect(netip.Addr{}, "tcp", p.at(p.pod), tryLimit))(t)
	defer c.Close()
	check.Value(network.SourceOf(c, patience))(t)
	began := time.Now()
	p.parent = p.happens(t, p.lan, p.Nodes[0].Namespace, p.role("n1"), p.parent)
	if !p.lost {
		check.Value(network.SourceOf(c, patience))(t)
		t.Logf("the connection goes on after %s", time.Since(began).Round(time.Millisecond))
		mute(t, p.pod, p.client)
	}
	check.OK(t, p.pod.Finish(t.Context()))
	p.pod = p.attach(t, p.Nodes[0], p.parent)
	p.talk(t, p.pod)
}

// bond makes a bond of the cable and a second one. The switch has one too, except for active-backup.
func bond(mode netlink.BondMode) func(*testing.T, network.LAN, *network.Namespace, string, string) string {
	return func(t *testing.T, l network.LAN, host *network.Namespace, role, cable string) string {
		t.Helper()
		check.OK(t, host.Plug(second(cable), nil, l.Switch, network.Port(second(role)), network.Bridge))
		if mode != netlink.BOND_MODE_ACTIVE_BACKUP {
			lag := "lag-" + role
			addBond(t, l.Switch, lag, mode, network.Port(role), network.Port(second(role)))
			check.OK(t, l.Switch.Replug(lag, network.Bridge))
		}
		addBond(t, host, "b"+cable, mode, cable, second(cable))
		return "b" + cable
	}
}

// second names the second cable, or its port.
func second(name string) string { return name + "x" }

func addBond(t *testing.T, ns *network.Namespace, name string, mode netlink.BondMode, ports ...string) {
	t.Helper()
	b := netlink.NewLinkBond(netlink.LinkAttrs{Name: name})
	b.Mode, b.Miimon = mode, 100
	check.OK(t, ns.Links().LinkAdd(b))
	for _, port := range ports {
		link := check.Value(ns.Links().LinkByName(port))(t)
		check.OK(t, errors.Join(ns.Links().LinkSetNoMaster(link), ns.Links().LinkSetDown(link), ns.Links().LinkSetMaster(link, b)))
	}
	check.OK(t, ns.Links().LinkSetUp(b))
}

// qinq makes VLAN 100 in the service VLAN 7 (IEEE 802.1ad).
func qinq(t *testing.T, _ network.LAN, host *network.Namespace, _, cable string) string {
	t.Helper()
	outer, inner := cable+".7", cable+".7.100"
	check.OK(t, host.AddChild(cable, &netlink.Vlan{VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021AD}, host, outer))
	check.OK(t, host.SetUp(outer, true))
	check.OK(t, host.AddChild(outer, &netlink.Vlan{VlanId: 100}, host, inner))
	check.OK(t, host.SetUp(inner, true))
	return inner
}

func bridged(t *testing.T, _ network.LAN, host *network.Namespace, _, cable string) string {
	t.Helper()
	check.OK(t, host.AddBridge("br"+cable))
	check.OK(t, host.Replug(cable, "br"+cable))
	return "br" + cable
}

// failOver pulls the active cable of a bond.
func failOver(t *testing.T, l network.LAN, _ *network.Namespace, role, parent string) string {
	t.Helper()
	check.OK(t, l.Switch.SetUp(network.Port(role), false))
	return parent
}

func downAndUp(t *testing.T, _ network.LAN, host *network.Namespace, _, parent string) string {
	t.Helper()
	check.OK(t, host.SetUp(parent, false))
	check.OK(t, host.SetUp(parent, true))
	return parent
}

func renamed(t *testing.T, _ network.LAN, host *network.Namespace, _, parent string) string {
	t.Helper()
	link := check.Value(host.Links().LinkByName(parent))(t)
	// The pool names the parent by its old name, which becomes an alternative one.
	check.OK(t, errors.Join(host.Links().LinkSetDown(link), host.Links().LinkSetName(link, "new"+parent), host.Links().LinkSetUp(link),
		host.Links().LinkAddAltName(link, parent)))
	return "new" + parent
}

func madeAgain(t *testing.T, l network.LAN, host *network.Namespace, role, parent string) string {
	t.Helper()
	check.OK(t, host.DeleteLink(parent))
	check.OK(t, host.Plug(parent, nil, l.Switch, network.Port(role), network.Bridge))
	return parent
}
