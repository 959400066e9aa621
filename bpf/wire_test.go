// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	lan "github.com/fenceline/fenceline/test/network"
)

// rig is a node with one observed parent, a pod that holds addr4 on it, and a stranger on the wire.
type rig struct {
	*Kernel
	t            testing.TB
	dir          string
	wire         *wire
	node, ext    *netns
	pod, sibling *netns // the sibling holds other4 and has no guard
	parent       int
	key          Key
	events       *eventLog
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigWith(t, Options{})
}

func newRigWith(t testing.TB, o Options) *rig {
	t.Helper()
	return newRigOf(t, o, (*netns).pod)
}

// newRigOf makes a rig whose pods are made by a function.
func newRigOf(t testing.TB, o Options, pod func(node *netns, parent, name string) *netns) *rig {
	t.Helper()
	w := newWire(t)
	r := &rig{t: t, dir: bpffs(t), wire: w, node: w.plug("node"), ext: w.plug("ext")}
	o.Dir = r.dir
	r.Kernel = openKernelWith(t, o)
	r.events = readEvents(t, r.Kernel)
	r.parent = r.node.index("p0")
	r.key = Key{Segment: uint32(r.parent), Addr: addr4}
	r.observe()
	r.pod = pod(r.node, "p0", "pod")
	r.node.do(func() error { return attachGuard(r.Kernel, r.guard()) })
	check.OK(t, r.Leases.Install(r.key, r.lease(100)))
	r.pod.up("eth0")
	r.pod.addAddr("eth0", addr4)
	r.sibling = pod(r.node, "p0", "sibling")
	r.sibling.up("eth0")
	r.sibling.addAddr("eth0", other4)
	r.observe() // the parent may be a bridge port now
	return r
}

func (r *rig) observe() {
	r.t.Helper()
	r.node.do(func() error { return r.Observers.Attach(r.parent) })
}

// unobserve takes the observer off a parent.
func (r *rig) unobserve(parent int) {
	r.t.Helper()
	r.node.do(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return errors.Join(r.Observers.detach(parent), r.Observers.tellMACs())
	})
}

func (r *rig) guard() Guard {
	return Guard{Slot: 1, Segment: r.parent, NetNS: r.pod.path, Interface: "eth0", NodeEnd: r.nodeEnd("pod")}
}

// nodeEnd is the node's end of the veth of a bridged pod; 0 for a macvlan.
func (r *rig) nodeEnd(pod string) int {
	index, err := r.node.Index(portOf(pod))
	if err != nil {
		return 0
	}
	return index
}

func (r *rig) lease(token uint64) Lease {
	return Lease{Token: token, Network: network, Slot: 1, MAC: r.pod.mac("eth0")}
}

// claim is sent by the stranger, who is another node here.
func (r *rig) claim(s *socket, token uint64) {
	r.t.Helper()
	f := claim.Frame{Flags: claim.Asks(heldToken), Network: network, Addr: addr4, Token: token}
	s.send(claimFrame(r.t, f, broadcast, r.ext.mac("p0"), keyA))
}

// answers reports whether the pod answers ARP requests of the stranger. A sibling answers each one's twin, by the same
// path and later: when it has spoken a few times, a silent pod is silent.
func (r *rig) answers(s *socket) bool {
	r.t.Helper()
	const rounds = 3
	asker := r.ext.mac("p0")
	for range rounds {
		s.send(eth(r.pod.mac("eth0"), asker, etherARP, arp(asker, far4, addr4)))
		s.send(eth(r.sibling.mac("eth0"), asker, etherARP, arp(asker, far4, other4)))
		if s.hears(arpFrom(addr4), arpFrom(other4)) { // the sibling's answer
			return true
		}
	}
	return false
}

func TestAClaimDoesNotReachPods(t *testing.T) {
	r := newRig(t)
	in := r.sibling.socket("eth0", allProtocols)
	s := r.ext.socket("p0", allProtocols)
	r.claim(s, 200)
	s.send(arpFrame(r.ext.mac("p0"), far4, other4))
	equal(t, "claim came", in.hears(protocol(etherClaim), arpFrom(far4)), false)
}

func TestABridgedParentPassesTheClaimOnAndAcks(t *testing.T) {
	r := newRig(t)
	// The switch's port to the node is itself a bridge port: observe there.
	port := r.wire.ns.index(lan.Port("ext"))
	k := openKernel(t, bpffs(t))
	r.wire.ns.do(func() error { return k.Observers.Attach(port) })
	held := Key{Segment: uint32(port), Addr: addr4}
	check.OK(t, k.Leases.Install(held, Lease{Token: heldToken, Network: network, Slot: 9, MAC: otherMAC}))
	in := r.node.socket("p0", allProtocols)
	s := r.ext.socket("p0", allProtocols)
	r.claim(s, 200)
	checkAck(t, s.expect("ack", protocol(etherClaim)), addr4, 200, r.ext.mac("p0"), r.wire.ns.mac(lan.Port("ext")), keyA)
	passed := in.expect("claim", protocol(etherClaim))
	f := check.Value(capture.Claim(passed[14:], claim.Key(keyA)))(t)
	equal(t, "flags", f.Flags, claim.Asks(heldToken))
	equal(t, "source", net.HardwareAddr(passed[6:12]).String(), r.ext.mac("p0").String())
}

func TestOnlyAMarkedProbeReachesLocalPods(t *testing.T) {
	r := newRig(t)
	check.OK(t, r.Leases.Remove(r.key)) // a holder that nobody has on record
	check.OK(t, r.Leases.Install(r.key, Lease{}))
	out := r.node.socket("p0", unix.ETH_P_ARP)
	probe := arpProbe(r.node.mac("p0"), addr4)

	out.send(probe)
	out.option(unix.SOL_SOCKET, unix.SO_MARK, int(ProbeMark))
	out.send(probe)
	e := r.events.next()
	for e.Kind.Tentative() { // the unmarked one is a foreign probe to the observer
		e = r.events.next()
	}
	equal(t, "type", e.Type, EventHit)
	equal(t, "kind", e.Kind, KindARPReply)
	equal(t, "MAC", e.MAC.String(), r.pod.mac("eth0").String())
	equal(t, "where", e.Where, WhereObserverEgress)
	s, _, err := r.Leases.State(r.key)
	check.OK(t, err)
	equal(t, "hits", s.Hits, 1) // of the marked probe alone
	equal(t, "probes", s.Probes, 1)
}

func TestARawSocketEscapesTheGuardButNotTheParent(t *testing.T) {
	for name, tc := range map[string]struct {
		observed, bypass bool
		arrives          bool
	}{
		"through the guard":                {true, false, false},
		"through the guard, no observer":   {false, false, false},
		"past the guard":                   {true, true, false},
		"past the guard, without observer": {false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.acks(200)
			if !tc.observed {
				r.unobserve(r.parent)
			}
			zombie := r.pod.socket("eth0", unix.ETH_P_IP)
			if tc.bypass {
				zombie.option(unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
			}
			podMAC := r.pod.mac("eth0")
			for range 10 {
				zombie.send(eth(broadcast, podMAC, etherIPv4, ipv4(addr4, far4)))
			}
			zombie.send(eth(broadcast, podMAC, etherIPv4, ipv4(nobody4, far4))) // the marker
			equal(t, "zombie's frames came", s.hears(ipFrom(addr4), ipFrom(nobody4)), tc.arrives)
		})
	}
}

func TestASocketThatLiesAboutItsProtocolIsReadByItsFrame(t *testing.T) {
	r := newRig(t)
	s := r.acks(200)
	r.unobserve(r.parent)
	liar := r.pod.socket("eth0", unix.ETH_P_LOOP)
	liar.send(arpFrame(r.pod.mac("eth0"), addr4, far4))
	liar.send(arpFrame(r.pod.mac("eth0"), nobody4, far4))
	equal(t, "zombie's ARP came", s.hears(arpFrom(addr4), arpFrom(nobody4)), false)
}

// As on a VF: nobody on the node sees the frame but the guard, whose ack leaves through the pod's own interface.
func TestAVerifyingGuardFencesAndAcksWithoutAnObserver(t *testing.T) {
	r := newRig(t)
	r.unobserve(r.parent)
	g := r.guard()
	g.Verify = true
	check.OK(t, attachGuard(r.Kernel, g))
	s := r.ext.socket("p0", allProtocols)
	equal(t, "answers before", r.answers(s), true)
	r.claim(s, 200)
	checkAck(t, s.expect("ack", protocol(etherClaim)), addr4, 200, r.ext.mac("p0"), r.pod.mac("eth0"), keyA)
	equal(t, "answers after", r.answers(s), false)
}

func TestADeadSlotIsMute(t *testing.T) {
	r := newRig(t)
	s := r.ext.socket("p0", allProtocols)
	equal(t, "answers before", r.answers(s), true)
	check.OK(t, r.Guards.Kill(1))
	equal(t, "answers after", r.answers(s), false)
}

// Some switches send priority-tagged frames; the driver has moved the tag out of the frame by the time we see it.
func TestPriorityTaggedFramesFromTheWireCountAsUntagged(t *testing.T) {
	r := newRig(t)
	check.OK(t, r.Leases.Install(Key{r.key.Segment, far4}, Lease{}))
	check.OK(t, r.Leases.Install(Key{r.key.Segment, nobody4}, Lease{}))
	s := r.ext.socket("p0", allProtocols)
	from := r.ext.mac("p0")
	s.send(tagged(100, arpFrame(from, far4, addr4)))
	s.send(tagged(0, arpFrame(from, nobody4, addr4)))
	equal(t, "first hit", r.events.next().Key.Addr, nobody4)
	equal(t, "VLAN 100 seen", has(r.Sightings.Last(Key{r.key.Segment, far4}))(t), false)
}
