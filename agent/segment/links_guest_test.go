// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package segment

import (
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// What follows needs modules that not every machine has: 8021q and ipvlan.

const rigVLAN = 5

// addVLAN adds the subinterface p0.5 to a machine and lifts it.
func (r *rig) addVLAN(ns *network.Namespace) string {
	r.t.Helper()
	const name = "p0.5"
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = name, check.Value(ns.Index("p0"))(r.t)
	check.OK(r.t, ns.Links().LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: rigVLAN}))
	check.OK(r.t, ns.SetUp(name, true))
	check.Becomes(r.t, patience, name+" is up", func() bool { return isUp(r.t, ns, name) })
	return name
}

// addVLANNode connects a node whose parent is a VLAN subinterface.
func (r *rig) addVLANNode(name string) *node {
	r.t.Helper()
	n := r.connect(name)
	n.join(r.addVLAN(n.ns))
	return n
}

// addVLANHost connects a foreign host that owns the given addresses in the VLAN.
func (r *rig) addVLANHost(name string, addrs ...netip.Addr) *host {
	r.t.Helper()
	h := r.addHost(name)
	vlan := r.addVLAN(h.ns)
	check.OK(r.t, h.ns.Do(func() error { // or it would answer outside of the VLAN for its address in it
		return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0)
	}))
	for _, a := range addrs {
		if a.Is4() || r.hasIPv6() {
			check.OK(r.t, h.ns.AddAddr(vlan, prefix(a)))
		}
	}
	return h
}

var (
	client4 = netip.MustParseAddr("10.99.0.51")
	client6 = netip.MustParseAddr("fd99::51")
)

func TestAProbeInAVLANMeetsWhoIsInItAndNobodyElse(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addVLANNode("node1")
		r.addHost("outside", addr)
		equal(t, "conflict with a host outside of the VLAN", n.probe(addr, params50).Conflict, false)
		inside := r.addVLANHost("inside", addr)
		answer := n.probe(addr, params50)
		equal(t, "conflict with a host in the VLAN", answer.Conflict, true)
		equal(t, "MAC", answer.MAC.String(), inside.mac.String())
	})
}

func TestAProbeOutsideAVLANMeetsNobodyInIt(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addNode("node1")
		r.addVLANHost("inside", addr)
		equal(t, "conflict", n.probe(addr, params50).Conflict, false)
	})
}

func TestAClaimInAVLANFencesAndIsAcked(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n1, n2 := r.addVLANNode("node1"), r.addVLANNode("node2")
		client := r.addVLANHost("client", client4, client6)
		zombie := n2.addPod("zombie", addr, 100)
		check.Becomes(t, patience, "the zombie answers before the claim", func() bool { return reaches(client.ns, addr) })

		outside := r.addNode("node3")
		verdict, _ := outside.verify(zombie.takeover(300))
		equal(t, "verdict of a node outside of the VLAN", verdict, Unknown)
		equal(t, "fenced by a claim from outside", check.Value(n2.kernel.Leases.Fenced(zombie.key()))(t), false)

		verdict, e := n1.verify(zombie.takeover(200))
		equal(t, "verdict", verdict, Fenced)
		equal(t, "acked by", e.AckMAC.String(), n2.mac.String())
		equal(t, "fenced", check.Value(n2.kernel.Leases.Fenced(zombie.key()))(t), true)
		equal(t, "a client reaches the zombie", reachesAnew(t, client, "p0.5", addr), false)
	})
}

// reachesAnew is reaches after the host has forgotten its neighbours.
func reachesAnew(t *testing.T, h *host, iface string, addr netip.Addr) bool {
	t.Helper()
	link := check.Value(h.ns.Links().LinkByName(iface))(t)
	check.OK(t, h.ns.Links().LinkSetARPOff(link)) // drops all that was learnt
	check.OK(t, h.ns.Links().LinkSetARPOn(link))
	return reaches(h.ns, addr)
}

// addChild makes an interface on the parent the namespace's eth0.
func (n *node) addChild(to *network.Namespace, link netlink.Link) {
	n.rig.t.Helper()
	check.OK(n.rig.t, n.ns.AddChild(n.iface, link, to, "eth0"))
}

// addIPVLANPod starts a pod whose interface shares the parent's MAC.
func (n *node) addIPVLANPod(name string, addr netip.Addr, token uint64) *pod {
	t := n.rig.t
	t.Helper()
	n.slots++
	p := &pod{node: n, ns: network.New(n.rig.t, name), addr: addr, slot: n.slots, mac: n.mac}
	n.addChild(p.ns, &netlink.IPVlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.IPVLAN_MODE_L2})
	p.start(token)
	return p
}

func TestAClaimFencesAnIPVLANPodAndSparesItsSibling(t *testing.T) {
	for name, second := range map[string]netip.Addr{"IPv4": netip.MustParseAddr("10.99.0.60"), "IPv6": netip.MustParseAddr("fd99::60")} {
		t.Run(name, func(t *testing.T) {
			addr := rig4
			if second.Is6() {
				addr = rig6
			}
			r := newRig(t)
			n1, n2 := r.addNode("node1"), r.addNode("node2")
			client := r.addHost("client", client4, client6)
			zombie, sibling := n2.addIPVLANPod("zombie", addr, 100), n2.addIPVLANPod("sibling", second, 110)
			for _, a := range []netip.Addr{addr, second} {
				check.Becomes(t, patience, a.String()+" answers before the claim", func() bool { return reaches(client.ns, a) })
			}

			verdict, e := n1.verify(zombie.takeover(200))
			equal(t, "verdict", verdict, Fenced)
			equal(t, "acked by", e.AckMAC.String(), n2.mac.String())
			equal(t, "a client reaches the zombie", reachesAnew(t, client, "p0", addr), false)
			equal(t, "the zombie reaches the client", reaches(zombie.ns, client.addr(addr)), false)
			equal(t, "a client reaches the sibling", reachesAnew(t, client, "p0", second), true)
			equal(t, "the sibling's slot", check.Value(n2.kernel.Leases.Fenced(sibling.key()))(t), false)

			zombie.lease(300)
			equal(t, "a client reaches it by a newer lease", reachesAnew(t, client, "p0", addr), true)
		})
	}
}

// addr is the client's of the same family.
func (h *host) addr(a netip.Addr) netip.Addr {
	if a.Is4() {
		return client4
	}
	return client6
}

func TestAProbeMeetsAnIPVLANPodThatFencelineDoesNotKnow(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n1, n2 := r.addNode("node1"), r.addNode("node2")
		ns := network.New(r.t, "stranger")
		n2.addChild(ns, &netlink.IPVlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.IPVLAN_MODE_L2})
		check.OK(t, ns.SetUp("eth0", true))
		check.OK(t, ns.AddAddr("eth0", prefix(addr)))
		probing := map[string]*node{"another node": n1}
		if addr.Is4() {
			// A solicitation that the parent itself sent, ipvlan takes for one of its own, by its target, and withholds it.
			probing["its own node"] = n2
		}
		for name, n := range probing {
			answer := n.probe(addr, params50)
			equal(t, "conflict seen by "+name, answer.Conflict, true)
			equal(t, "MAC seen by "+name, answer.MAC.String(), n2.mac.String())
		}
	})
}

// An ipvlan pod's MAC is its parent's: no guard can tell it by that, and the address alone decides.
func TestAnIPVLANPodMayNotSpeakForItsSibling(t *testing.T) {
	r := newRig(t)
	n := r.addNode("node1")
	client := r.addHost("client", client4)
	n.addIPVLANPod("pod", rig4, 100)
	thief := n.addIPVLANPod("thief", netip.MustParseAddr("10.99.0.60"), 110)
	seen := startCapture(t, r.network, n.port)
	p := check.Value(OpenPort(thief.ns.Path(), "eth0", 0))(t)
	defer func() { check.OK(t, p.Close()) }()
	for _, f := range check.Value(frames.Announce(n.mac, rig4))(t) {
		// Which is how a raw socket is told that its frame was dropped on the spot.
		check.Is(t, p.Send(f), unix.ENOBUFS, "send for the sibling's address: got")
	}
	equal(t, "the thief reaches the client by its own address", reaches(thief.ns, client.addr(rig4)), true)
	equal(t, "frames for the sibling's address", len(seen.list(from(n.mac, rig4))), 0)
}
