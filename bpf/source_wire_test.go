// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

// wireRig is a rig whose pod and sibling have a source guard, on a parent that knows its devices.
type wireRig struct {
	*rig
	heard *socket // on the stranger's port
}

func newWireRig(t testing.TB) *wireRig {
	t.Helper()
	return guardedWire(t, newRig(t))
}

func guardedWire(t testing.TB, r *rig) *wireRig {
	t.Helper()
	r.guards()
	check.OK(t, r.Sources.SetTrusted(r.parent, nil, true))
	return &wireRig{rig: r, heard: r.ext.socket("p0", allProtocols)}
}

// guards gives the pod its source guard, and the sibling a guard with one.
func (r *rig) guards() {
	r.t.Helper()
	check.OK(r.t, r.Leases.Install(Key{r.key.Segment, addr6}, r.lease(100)))
	check.OK(r.t, r.Sources.Set(1, Sources{Mode: SourcesEnforce, MAC: r.pod.mac("eth0")}))
	sibling := Guard{Slot: 2, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0", NodeEnd: r.nodeEnd("sibling")}
	r.node.do(func() error { return attachGuard(r.Kernel, sibling) })
	check.OK(r.t, r.Leases.Install(Key{r.key.Segment, other4}, Lease{Token: 1, Network: network, Slot: 2, MAC: r.sibling.mac("eth0")}))
	check.OK(r.t, r.Sources.Set(2, Sources{Mode: SourcesEnforce, MAC: r.sibling.mac("eth0")}))
}

// bypass opens a socket that the guard of the interface does not see.
func (r *rig) bypass(ns *netns, device string) *socket {
	s := ns.socket(device, unix.ETH_P_LOOP)
	s.option(unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	return s
}

// marker is a frame of the pod itself, of the same protocol as another one.
func marker(like []byte, by, to net.HardwareAddr) []byte {
	switch protocolOf(like) {
	case etherIPv4:
		return eth(to, by, etherIPv4, ipv4(addr4, far4))
	case etherIPv6:
		return eth(to, by, etherIPv6, ipv6(addr6, far6, nextUDP, udp()))
	}
	return eth(to, by, etherARP, arp(by, addr4, far4))
}

// goes sends a frame out of a pod and checks whether it comes, before a marker that follows it by the same way. Two CPUs
// may change the order, so one that shall come is waited for.
func (r *rig) goes(what string, from *socket, at *socket, frame, marker []byte, comes bool) {
	r.t.Helper()
	if !comes {
		equal(r.t, what+" escapes", r.escapes(from, at, frame, marker), false)
		return
	}
	from.send(frame)
	at.expect(what, like(frame))
}

// like matches a frame with all its tags, or without the outer ones that the receiver's kernel takes off.
func like(frame []byte) func([]byte) bool {
	return func(f []byte) bool {
		return string(f) == string(frame) || string(f) == string(untagged(frame)) || string(f) == string(untagged(untagged(frame)))
	}
}

func (r *rig) escapes(from *socket, at *socket, frame, marker []byte) bool {
	r.t.Helper()
	from.send(frame)
	from.send(marker)
	return at.hears(like(frame), func(f []byte) bool { return string(f) == string(marker) })
}

// untagged takes off the outer tag, if there is one.
func untagged(frame []byte) []byte {
	if proto := binary.BigEndian.Uint16(frame[12:]); proto != etherVLAN && proto != 0x88a8 {
		return frame
	}
	return slices.Concat(frame[:12], frame[16:])
}

// party is somebody whom a pod pretends to be.
type party struct {
	name      string
	four, six netip.Addr
}

func victims() []party {
	address := func(host string) party {
		return party{four: netip.MustParseAddr("10.9.0." + host), six: netip.MustParseAddr("fd09::" + host)}
	}
	gateway, node := address("254"), address("100")
	return []party{
		{"a remote pod", far4, far6}, {"the sibling", other4, other6}, {"the gateway", gateway.four, gateway.six},
		{"the node", node.four, node.six}, {"nobody", nobody4, address("250").six},
	}
}

// forgeries are the kinds of frames by which a pod speaks as somebody, to all.
func forgeries(own net.HardwareAddr) map[string]func(as party) []byte {
	return map[string]func(as party) []byte{
		"ARP reply": func(as party) []byte {
			frame := arpFrame(own, as.four, addr4)
			frame[21] = 2
			return frame
		},
		"NA":   func(as party) []byte { return naFrame(own, as.six) },
		"IPv4": func(as party) []byte { return eth(broadcast, own, etherIPv4, ipv4(as.four, addr4)) },
		"IPv6": func(as party) []byte { return eth(broadcast, own, etherIPv6, ipv6(as.six, addr6, nextUDP, udp())) },
	}
}

// forgedBy are frames that a pod must not send.
func forgedBy(own net.HardwareAddr) map[string][]byte {
	return map[string][]byte{
		"ARP":                  arpFrame(own, far4, far4),
		"ARP of the sibling":   arpFrame(own, other4, other4),
		"IPv4":                 eth(broadcast, own, etherIPv4, ipv4(far4, addr4)),
		"IPv4 fragment":        fragmented4(eth(broadcast, own, etherIPv4, ipv4(far4, addr4)), 64, false),
		"IPv6 behind a header": eth(broadcast, own, etherIPv6, ipv6(far6, addr6, nextDest, extension(nextUDP), udp())),
		"NA":                   eth(broadcast, own, etherIPv6, ipv6(far6, addr6, nextICMPv6, na(far6, own))),
		"router advertisement": eth(broadcast, own, etherIPv6, ipv6(local6, addr6, nextICMPv6, icmpv6(134, make([]byte, 8)))),
		"DHCP offer":           eth(broadcast, own, etherIPv4, l4(addr4, far4, 17, ports(67, 68)...)),
		"VLAN 0":               tagged(0, arpFrame(own, addr4, nobody4)),
		"VLAN 100":             tagged(100, arpFrame(own, addr4, nobody4)),
		"QinQ":                 tag(0x88a8, 7, tagged(100, arpFrame(own, addr4, nobody4))),
		"LLDP":                 eth(broadcast, own, 0x88cc, make([]byte, 46)),
		"jumbo":                eth(broadcast, own, etherIPv4, l4(far4, addr4, 17, make([]byte, 1400)...)),
		"claim":                eth(broadcast, own, etherClaim, make([]byte, 46)),
	}
}

// The frames name the remote pod, the gateway and a free address alike: none is leased to the pod. No socket passes the
// guard of a pod on a bridge, which is at the node's end.
func TestWhatPassesTheGuardIsStoppedOnTheParentAndByTheSibling(t *testing.T) {
	t.Run("macvlan", func(t *testing.T) { nothingForgedEscapes(t, newWireRig(t)) })
	t.Run("bridge", func(t *testing.T) { nothingForgedEscapes(t, guardedWire(t, newRigOf(t, Options{}, (*netns).bridged))) })
}

func nothingForgedEscapes(t *testing.T, r *wireRig) {
	t.Helper()
	own, sibling := r.pod.mac("eth0"), r.sibling.mac("eth0")
	forged := forgedBy(own)
	beside := map[int]*socket{} // of one protocol each, since one of all protocols comes before the guard
	for _, proto := range []int{etherARP, etherIPv4, etherIPv6} {
		beside[proto] = r.sibling.socket("eth0", proto)
	}
	for _, way := range []struct {
		name string
		from *socket
	}{{"through the guard", r.pod.socket("eth0", unix.ETH_P_LOOP)}, {"past the guard", r.bypass(r.pod, "eth0")}} {
		for name, frame := range forged {
			t.Run(name+" "+way.name+" to the wire", func(t *testing.T) {
				r.t = t
				equal(t, "escapes", r.escapes(way.from, r.heard, frame, marker(frame, own, broadcast)), false)
			})
			at := beside[protocolOf(frame)]
			if at == nil {
				continue
			}
			t.Run(name+" "+way.name+" to the sibling", func(t *testing.T) {
				r.t = t
				equal(t, "escapes by broadcast", r.escapes(way.from, at, frame, marker(frame, own, broadcast)), false)
				equal(t, "escapes", r.escapes(way.from, at, to(sibling, frame), marker(frame, own, sibling)), false)
			})
		}
	}
	t.Run("without the check they escape", func(t *testing.T) {
		r.t = t
		past := r.bypass(r.pod, "eth0")
		check.OK(t, r.Sources.Set(1, Sources{MAC: own}))
		for name, frame := range forged {
			if name != "ARP of the sibling" && name != "claim" { // the rules of leases and claims stop them
				r.goes(name+" to the wire", past, r.heard, frame, nil, true)
			}
		}
		ip := to(sibling, forged["IPv4"])
		r.goes("IPv4 to the sibling", past, beside[etherIPv4], ip, nil, true)
	})
}

// The kernel tells by the network namespaces of the slots which interfaces are of one pod.
func TestTheOtherInterfaceOfAPodHasItsAddressesToo(t *testing.T) {
	r := newWireRig(t)
	check.OK(t, r.node.AddMacvlan("p0", nil, r.pod.Namespace, "net1"))
	check.OK(t, attachGuard(r.Kernel, Guard{Slot: 3, Segment: r.parent, NetNS: r.pod.path, Interface: "net1"}))
	check.OK(t, r.Leases.Install(Key{r.key.Segment, nobody4}, Lease{Token: 1, Network: network, Slot: 3, MAC: r.pod.mac("net1")}))
	check.OK(t, r.Sources.Set(3, Sources{Mode: SourcesEnforce, MAC: r.pod.mac("net1")}))
	r.pod.up("net1")
	own := r.pod.mac("eth0")
	packet, arp := eth(broadcast, own, etherIPv4, ipv4(nobody4, far4)), arpFrame(own, nobody4, far4)
	for name, from := range map[string]*socket{"through the guard": r.pod.socket("eth0", unix.ETH_P_LOOP), "past the guard": r.bypass(r.pod, "eth0")} {
		r.goes("a packet "+name, from, r.heard, packet, nil, true)
		r.goes("ARP "+name, from, r.heard, arp, marker(arp, own, broadcast), false)
	}
	of := r.sibling.mac("eth0")
	stolen := eth(broadcast, of, etherIPv4, ipv4(nobody4, far4))
	r.goes("a packet of another pod", r.sibling.socket("eth0", unix.ETH_P_LOOP), r.heard, stolen, eth(broadcast, of, etherIPv4, ipv4(other4, far4)), false)
}

// A broadcast of a pod comes by its guard, the observer and the guards of the pods beside.
func TestAnObservedFrameIsCountedOnce(t *testing.T) {
	r := newWireRig(t)
	own := r.pod.mac("eth0")
	check.OK(t, r.Sources.Set(1, Sources{Mode: SourcesObserve, MAC: own}))
	beside := r.sibling.socket("eth0", unix.ETH_P_ARP)
	counted := func() (n uint64) {
		for o, frames := range check.Value(r.Sources.Offences())(t) {
			equal(t, "offence", o, Offence{Slot: 1, Result: ResultDropUnleased, Observed: true})
			n += frames
		}
		return n
	}
	send := func(from *socket, of netip.Addr) {
		frame := arpFrame(own, of, addr4)
		from.send(frame)
		r.heard.expect("the frame on the wire", like(frame))
		beside.expect("the frame beside", like(frame))
	}
	send(r.pod.socket("eth0", unix.ETH_P_LOOP), far4)
	equal(t, "counted", counted(), 1)
	send(r.bypass(r.pod, "eth0"), nobody4)
	check.That(t, counted() > 1, "not counted past the guard")
}

// With macPolicy, a holder on another node may have the MAC of a pod. The siblings must hear it while the pod is fenced, and
// only then.
func TestAMACThatAnotherNodeMayHaveIsJudgedBySiblings(t *testing.T) {
	r := newWireRig(t)
	own, sibling := r.pod.mac("eth0"), r.sibling.mac("eth0")
	check.OK(t, r.Sources.Set(1, Sources{Mode: SourcesEnforce, MAC: own, SharedMAC: true}))
	l := r.lease(100)
	l.Flags = FlagSharedMAC
	check.OK(t, r.Leases.Install(r.key, l))
	past, beside := r.bypass(r.pod, "eth0"), r.sibling.socket("eth0", unix.ETH_P_ARP)
	for name, as := range map[string]netip.Addr{"the gateway": far4, "nobody": nobody4} {
		forged := to(sibling, arpFrame(own, as, other4))
		equal(t, "ARP as "+name+" escapes", r.escapes(past, beside, forged, marker(forged, own, sibling)), false)
	}
	r.claim(r.ext.socket("p0", unix.ETH_P_ARP), 200)
	r.heard.expect("ack", protocol(etherClaim))
	for _, of := range []netip.Addr{addr4, nobody4} {
		frame := to(sibling, arpFrame(own, of, other4))
		r.goes("ARP of the new holder", r.ext.socket("p0", unix.ETH_P_ARP), beside, frame, nil, true)
	}
}

// A MAC that no device of the node has leaves by no way: neither from a raw socket, nor from a stacked device.
func TestStrangersDoNotLeaveTheNode(t *testing.T) {
	for name, tc := range map[string]struct {
		allowed   []net.HardwareAddr
		exclusive bool
		escapes   bool
	}{
		"exclusive":              {nil, true, false},
		"exclusive, but allowed": {[]net.HardwareAddr{remoteMAC}, true, true},
		"not exclusive":          {nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWireRig(t)
			check.OK(t, r.Sources.SetTrusted(r.parent, nil, tc.exclusive))
			check.OK(t, r.Sources.Set(2, Sources{MAC: r.sibling.mac("eth0"), MACs: tc.allowed, Mode: SourcesEnforce}))
			past := r.bypass(r.pod, "eth0")
			forged := arpFrame(remoteMAC, nobody4, far4)
			end := marker(forged, r.pod.mac("eth0"), broadcast)
			r.goes("a changed MAC", past, r.heard, forged, end, tc.escapes)
			r.goes("a changed MAC with a tag", past, r.heard, tagged(5, arpFrame(remoteMAC, nobody4, other4)), end, tc.escapes)
			r.stack(r.pod, "eth0", "mv0", remoteMAC)
			stacked := r.pod.socket("mv0", unix.ETH_P_LOOP)
			if tc.escapes {
				r.goes("a stacked macvlan", stacked, r.heard, arpFrame(remoteMAC, far4, far4), nil, true)
			} else {
				stacked.send(arpFrame(remoteMAC, far4, far4))
				equal(t, "a stacked macvlan escapes", r.escapes(past, r.heard, arpFrame(remoteMAC, far4, far4), end), false)
			}
			all := check.Value(r.Sources.Offences())(t)
			equal(t, "strangers were counted", all[Offence{Result: ResultDropStranger}] > 0, !tc.escapes)
			mine := arpFrame(r.node.mac("p0"), netip.MustParseAddr("10.9.0.7"), far4)
			r.node.socket("p0", unix.ETH_P_ARP).send(mine)
			r.heard.expect("frame of the node", func(f []byte) bool { return string(f) == string(mine) })
		})
	}
}

// stack puts a macvlan on a device of a pod, as a process with NET_ADMIN can. The kernel makes it one of the parent.
func (r *rig) stack(ns *netns, on, name string, by net.HardwareAddr) {
	r.t.Helper()
	attrs := netlink.LinkAttrs{Name: name, ParentIndex: ns.index(on), HardwareAddr: by}
	check.OK(r.t, ns.Links().LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}))
	ns.up(name)
}

// The guard holds however the pod treats its interface.
func TestTheSourceGuardOutlivesWhatThePodDoesToItsInterface(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, r *rig){
		"down and up": func(_ *testing.T, r *rig) { r.pod.down("eth0"); r.pod.up("eth0") },
		"another MAC": func(_ *testing.T, r *rig) { r.pod.setMAC("eth0", otherMAC) },
		"moved away and back": func(t *testing.T, r *rig) {
			away := newNetNS(t, "away")
			r.pod.move("eth0", away)
			away.move("eth0", r.pod)
			r.pod.up("eth0")
		},
	} {
		for kind, pod := range map[string]func(node *netns, parent, name string) *netns{"macvlan": (*netns).pod, "bridge": (*netns).bridged} {
			t.Run(kind+" "+name, func(t *testing.T) {
				r := guardedWire(t, newRigOf(t, Options{}, pod))
				r.node.do(func() error { return r.Guards.Pin(r.guard()) })
				do(t, r.rig)
				r.drops("through the guard", r.pod.socket("eth0", unix.ETH_P_LOOP))
				r.drops("past the guard", r.bypass(r.pod, "eth0"))
			})
		}
	}
}

// A source route leaves its first hop in the kernel's control block of the packet, where a tcx link
// finds the class of a filter. Such a hop must not pass a pod's interface for a host link, whose
// MACs are not judged.
func TestAnIPOptionDoesNotPassForAHostLink(t *testing.T) {
	hop := netip.AddrFrom4([4]byte{10, 0, 0x1e, 0xf1}) // the class of host links, little endian
	r := newRig(t)
	r.guards()
	heard, own := r.ext.socket("p0", unix.ETH_P_IP), r.pod.mac("eth0")
	send := func() {
		t.Helper()
		r.pod.neighbour("eth0", hop, r.ext.mac("p0"))
		r.pod.do(func() error { return sendByHop(hop, far4) })
	}
	came := func(frame []byte) bool { return ipFrom(addr4)(frame) && frame[14] > 0x45 }
	send()
	heard.expect("a packet with the option", came)
	r.pod.setMAC("eth0", otherMAC)
	send()
	last := marker(eth(broadcast, own, etherIPv4), own, broadcast)
	r.pod.socket("eth0", unix.ETH_P_LOOP).send(last)
	equal(t, "came with a forged MAC", heard.hears(came, like(last)), false)
}

// neighbour makes an address reachable without ARP.
func (ns *netns) neighbour(name string, a netip.Addr, mac net.HardwareAddr) {
	ns.t.Helper()
	index := ns.index(name)
	ns.do(func() error {
		return errors.Join(
			netlink.RouteReplace(&netlink.Route{LinkIndex: index, Dst: netlink.NewIPNet(a.AsSlice()), Scope: netlink.SCOPE_LINK}),
			netlink.NeighSet(&netlink.Neigh{LinkIndex: index, IP: a.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT}),
		)
	})
}

// sendByHop sends a UDP packet with a loose source route (RFC 791, section 3.1) in the calling thread's network
// namespace.
func sendByHop(hop, to netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	h := hop.As4()
	route := append([]byte{1, 131, 7, 4}, h[:]...) // NOP, LSRR of 7 bytes, the first hop
	if err := unix.SetsockoptString(fd, unix.SOL_IP, unix.IP_OPTIONS, string(route)); err != nil {
		return err
	}
	return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 9, Addr: to.As4()})
}

// drops sends a forged frame of the pod, and waits until it is counted.
func (r *wireRig) drops(way string, from *socket) {
	r.t.Helper()
	reasons := []Offence{{Slot: 1, Result: ResultDropUnleased}, {Slot: 1, Result: ResultDropEther}, {Result: ResultDropStranger}}
	counted := func() (n uint64) {
		all := check.Value(r.Sources.Offences())(r.t)
		for _, o := range reasons {
			n += all[o]
		}
		return n
	}
	forged, before := arpFrame(r.pod.mac("eth0"), far4, far4), counted()
	from.send(forged)
	check.Becomes(r.t, time.Minute, "a frame "+way+" is dropped", func() bool { return counted() > before })
	equal(r.t, "came "+way, r.heard.has(forged), false)
}

func (ns *netns) down(name string) {
	ns.t.Helper()
	check.OK(ns.t, ns.SetUp(name, false))
}
