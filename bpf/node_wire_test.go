// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
)

var (
	// shimMAC is that of a device of the node on its parent.
	shimMAC = mac("02:00:00:00:03:03")
	node4   = netip.MustParseAddr("10.9.0.100")
	node6   = netip.MustParseAddr("fd09::100")
	group   = mac("01:80:c2:00:00:00")
)

// asNode are frames that only the node may send with a MAC of its own.
func asNode(t testing.TB, by net.HardwareAddr) map[string][]byte {
	frames := forgedBy(by)
	delete(frames, "ARP of the sibling") // which no node sends
	for _, as := range victims() {
		for kind, frame := range forgeries(by) {
			frames[kind+" as "+as.name] = frame(as)
		}
	}
	frames["ARP of the node by another MAC"] = withSource(by, arpFrame(shimMAC, node4, far4))
	frames["ARP probe"] = arpProbe(by, nobody4)
	frames["DHCP request"] = eth(broadcast, by, etherIPv4, l4(none4, netip.IPv4Unspecified(), 17, ports(68, 67)...))
	frames["VRRP"] = eth(broadcast, by, etherIPv4, l4(node4, netip.MustParseAddr("224.0.0.18"), 112))
	frames["BPDU"] = eth(group, by, 38, make([]byte, 46))
	frames["router advertisement of the node"] = eth(broadcast, by, etherIPv6, ipv6(node6, addr6, nextICMPv6, icmpv6(134, make([]byte, 8))))
	frames["DHCP offer of the node"] = eth(broadcast, by, etherIPv4, l4(node4, far4, 17, ports(67, 68)...))
	frames["a recorded claim"] = claimFrame(t, claim.Frame{Network: network, Addr: far4, Token: 50}, broadcast, by, keyA)
	frames["a recorded claim with a tag"] = tagged(100, frames["a recorded claim"])
	return frames
}

// The MACs of the node's devices on an exclusive parent are good for frames of the node, and for nobody else, whatever
// is in them.
func TestTheMACsOfTheNodeAreTheNodesAlone(t *testing.T) {
	r := newWireRig(t)
	own, parent := r.pod.mac("eth0"), r.node.mac("p0")
	r.exclude(parent, shimMAC)
	check.OK(t, r.Sources.SetNodeAddresses([]netip.Addr{node4, node6}))
	tunnels := map[string]bool{"IPv4 as the node": true, "IPv6 as the node": true} // UDP
	foreign := r.node.pod("p0", "foreign")                                         // of nobody
	foreign.up("eth0")
	for name, by := range map[string]net.HardwareAddr{"the parent": parent, "another device": shimMAC} {
		for kind, frame := range asNode(t, by) {
			for who, pod := range map[string]*netns{"a pod": r.pod, "an unknown pod": foreign} {
				t.Run(kind+" with the MAC of "+name+" by "+who, func(t *testing.T) {
					r.t = t
					last := marker(frame, own, broadcast)
					r.bypass(pod, "eth0").send(frame)
					r.bypass(r.pod, "eth0").send(last)
					equal(t, "escapes", r.heard.hears(like(frame), like(last)), tunnels[kind])
				})
			}
			t.Run(kind+" with the MAC of "+name+" by the node", func(t *testing.T) {
				r.t = t
				r.goes(kind, r.node.socket("p0", unix.ETH_P_LOOP), r.heard, frame, nil, true)
			})
		}
	}
}

// A kernel without BTF does not show whose socket a frame is of.
func TestWithoutTheKernelsTypesAFrameWithTheNodesMACIsTheNodes(t *testing.T) {
	r := newWireRig(t)
	r.unobserve(r.parent)
	r.Observers.load = func(parent uint32) (attach.Programs, error) { return observerOf(parent, nil, r.shared) }
	r.observe()
	parent := r.node.mac("p0")
	r.exclude(parent)
	r.goes("ARP of the node", r.node.socket("p0", unix.ETH_P_LOOP), r.heard, arpFrame(parent, node4, far4), nil, true)
	r.goes("ARP of a pod", r.bypass(r.pod, "eth0"), r.heard, arpFrame(parent, far4, far4), nil, true)
	escapes := r.escapes(r.bypass(r.pod, "eth0"), r.heard, arpFrame(shimMAC, far4, far4), marker(arpFrame(parent, far4, far4), r.pod.mac("eth0"), broadcast))
	equal(t, "a stranger escapes", escapes, false)
}

// The mark of the agent's probes is of no use to a pod either: its probe does not come to the pods beside.
func TestAProbeOfAPodIsNotReflected(t *testing.T) {
	r := newRig(t)
	probe := arpProbe(r.node.mac("p0"), other4)
	for who, from := range map[string]*socket{"a pod": r.bypass(r.pod, "eth0"), "the node": r.node.socket("p0", unix.ETH_P_LOOP)} {
		from.option(unix.SOL_SOCKET, unix.SO_MARK, int(ProbeMark))
		before := check.Value(r.Counters())(t)
		from.send(probe)
		after, reflected := check.Value(r.Counters())(t), Counter{WhereObserverEgress, ResultReflected}
		equal(t, "reflected for "+who, after[reflected] > before[reflected], who == "the node")
	}
}

// In an upgrade, tunnels must live until the agent has told the addresses of the node.
func TestTheNodesMACsAreClosedOnceItsAddressesAreKnown(t *testing.T) {
	r := newWireRig(t)
	parent := r.node.mac("p0")
	check.OK(t, r.Sources.SetTrusted(r.parent, []net.HardwareAddr{parent}, true))
	frame, past := arpFrame(parent, far4, far4), r.bypass(r.pod, "eth0")
	r.goes("ARP of a pod", past, r.heard, frame, nil, true)
	check.OK(t, r.Sources.SetNodeAddresses([]netip.Addr{node4}))
	equal(t, "escapes", r.escapes(past, r.heard, frame, marker(frame, r.pod.mac("eth0"), broadcast)), false)
	r.reopen(Options{})
	equal(t, "escapes after a restart", r.escapes(past, r.heard, frame, marker(frame, r.pod.mac("eth0"), broadcast)), false)
}

// The interface that a pod stacks on its own has no guard.
func TestAStackedInterfaceWithAMACOfTheNodeIsAStranger(t *testing.T) {
	r := newWireRig(t)
	r.exclude(r.node.mac("p0"), shimMAC)
	r.stack(r.pod, "eth0", "mv0", shimMAC)
	frame := arpFrame(shimMAC, far4, far4)
	r.pod.socket("mv0", unix.ETH_P_LOOP).send(frame)
	last := marker(frame, r.pod.mac("eth0"), broadcast)
	r.bypass(r.pod, "eth0").send(last)
	equal(t, "escapes", r.heard.hears(like(frame), like(last)), false)
}

// exclude makes the parent exclusive for devices of the node.
func (r *wireRig) exclude(devices ...net.HardwareAddr) {
	r.t.Helper()
	check.OK(r.t, r.Sources.SetTrusted(r.parent, devices, true))
	check.OK(r.t, r.Sources.SetNodeAddresses([]netip.Addr{netip.MustParseAddr("192.0.2.1")}))
}

// The gate and the rules of claims know the parent's MAC as well, on each parent.
func TestTheParentsMACOpensNoGate(t *testing.T) {
	r := newRig(t)
	r.guards()
	parent, sibling := r.node.mac("p0"), r.sibling.mac("eth0")
	heard, past := r.acks(200), r.bypass(r.pod, "eth0")
	for name, frame := range map[string][]byte{
		"ARP of a sibling with the parent's MAC":   arpFrame(parent, other4, far4),
		"a claim with the parent's MAC":            claimFrame(t, claim.Frame{Network: network, Addr: far4, Token: 50}, broadcast, parent, keyA),
		"a claim with a forged MAC":                claimFrame(t, claim.Frame{Network: network, Addr: far4, Token: 50}, broadcast, shimMAC, keyA),
		"a claim with a tag":                       tagged(7, claimFrame(t, claim.Frame{Network: network, Addr: far4, Token: 50}, broadcast, shimMAC, keyA)),
		"the fenced address behind a tag":          tagged(7, eth(broadcast, shimMAC, etherIPv4, ipv4(addr4, far4))),
		"ARP of the fenced address behind a tag":   tagged(7, arpFrame(shimMAC, addr4, far4)),
		"the fenced address behind the node's tag": tagged(7, eth(broadcast, parent, etherIPv4, ipv4(addr4, far4))),
		"the fenced address behind two tags":       tag(0x88a8, 7, tagged(8, arpFrame(parent, addr4, far4))),
	} {
		t.Run(name, func(t *testing.T) {
			past.send(frame)
			last := eth(broadcast, sibling, etherIPv4, ipv4(other4, far4))
			r.bypass(r.sibling, "eth0").send(last)
			equal(t, "escapes", heard.hears(like(frame), like(last)), false)
		})
	}
	t.Run("another pod has the address on a VLAN", func(t *testing.T) {
		frame := tagged(7, eth(broadcast, shimMAC, etherIPv4, ipv4(addr4, far4)))
		r.goes("its frame", r.bypass(r.sibling, "eth0"), &socket{t, heard.Conn}, frame, nil, true)
	})
}

// What the node forwards has any source: it comes from another interface of the node.
func TestAnExclusiveParentCarriesWhatTheNodeForwards(t *testing.T) {
	r := newWireRig(t)
	r.exclude(r.node.mac("p0"))
	routed := netip.MustParseAddr("10.77.0.2")
	pod := newNetNS(t, "routed") // of a CNI that routes
	check.OK(t, pod.AddPair("eth0", r.node.Namespace, "cali0"))
	for _, end := range []struct {
		ns   *netns
		name string
		addr netip.Addr
	}{{pod, "eth0", routed}, {r.node, "cali0", netip.MustParseAddr("10.77.0.1")}} {
		end.ns.up(end.name)
		end.ns.addAddr(end.name, end.addr)
	}
	r.node.addAddr("p0", node4)
	check.OK(t, r.node.Forward())
	check.OK(t, pod.AddRoute(netip.Prefix{}, netip.MustParseAddr("10.77.0.1")))
	r.node.neighbour("p0", far4, r.ext.mac("p0"))
	heard := r.ext.socket("p0", unix.ETH_P_IP)
	packet := eth(r.node.mac("cali0"), pod.mac("eth0"), etherIPv4, l4(routed, far4, 17, ports(9, 9)...))
	t.Run("by routes", func(t *testing.T) {
		pod.socket("eth0", unix.ETH_P_LOOP).send(packet)
		heard.expect("a routed packet", ipFrom(routed))
	})
	t.Run("by a program", func(t *testing.T) {
		r.redirect("cali0", "p0")
		frame := eth(r.ext.mac("p0"), r.node.mac("p0"), etherIPv4, l4(routed, far4, 17, ports(9, 10)...))
		pod.socket("eth0", unix.ETH_P_LOOP).send(frame)
		heard.expect("a redirected packet", like(frame))
	})
}

// redirect lets a program send what comes in by a device of the node out of another one, as CNIs do.
func (r *rig) redirect(device, to string) {
	r.t.Helper()
	program := check.Value(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(r.node.index(to))), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
	}}))(r.t)
	r.t.Cleanup(func() { program.Close() })
	attrs := netlink.QdiscAttrs{LinkIndex: r.node.index(device), Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	check.OK(r.t, r.node.Links().QdiscAdd(&netlink.Clsact{QdiscAttrs: attrs}))
	check.OK(r.t, r.node.Links().FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: attrs.LinkIndex, Parent: netlink.HANDLE_MIN_INGRESS, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd:          program.FD(), Name: "redirect", DirectAction: true,
	}))
}
