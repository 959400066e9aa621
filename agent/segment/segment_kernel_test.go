// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

var (
	rig4 = netip.MustParseAddr("10.99.0.50")
	rig6 = netip.MustParseAddr("fd99::50")
)

func families(t *testing.T, test func(t *testing.T, addr netip.Addr)) {
	t.Run("IPv4", func(t *testing.T) { test(t, rig4) })
	t.Run("IPv6", func(t *testing.T) { test(t, rig6) })
}

// probe probes an address from a node.
func (n *node) probe(addr netip.Addr, p ProbeParams) Answer {
	n.rig.t.Helper()
	return check.Value(n.seg.Probe(n.rig.t.Context(), addr, p))(n.rig.t)
}

func TestForeignHostAnswersTheProbe(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addNode("node1")
		h := r.addHost("host", addr)
		answer := n.probe(addr, params50)
		equal(t, "conflict", answer.Conflict, true)
		equal(t, "MAC", answer.MAC.String(), h.mac.String())

		p := params50
		p.Ignore = []net.HardwareAddr{h.mac}
		equal(t, "conflict with an ignored proxy", n.probe(addr, p).Conflict, false)
	})
}

func TestLocalSiblingAnswersTheReflectedProbe(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addNode("node1")
		// A sibling that Fenceline does not know: a macvlan without guard or lease.
		ns, mac := network.New(t, "sibling"), net.HardwareAddr{2, 0, 0, 9, 9, 9}
		check.OK(t, n.ns.AddMacvlan("p0", mac, ns, "eth0"))
		check.OK(t, ns.SetUp("eth0", true))
		check.OK(t, ns.AddAddr("eth0", prefix(addr)))
		answer := n.probe(addr, params50)
		equal(t, "conflict", answer.Conflict, true)
		equal(t, "MAC", answer.MAC.String(), mac.String())
	})
}

func TestAnAddressOfTheParentItselfIsInUse(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addNode("node1")
		check.OK(t, n.ns.AddAddr("p0", prefix(addr)))
		answer := n.probe(addr, params50)
		equal(t, "conflict", answer.Conflict, true)
		equal(t, "MAC", answer.MAC.String(), n.mac.String())
	})
}

// The parent announces no address that it gets.
func TestAnAddressThatTheParentGetsIsInDoubt(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addNode("node1")
		w := n.watchLong(addr, DoubtNone)
		check.OK(t, n.ns.AddAddr("p0", prefix(addr)))
		doubt, answer := n.within(w.Doubt)
		check.That(t, doubt == DoubtSpoken && answer.MAC.String() == n.mac.String(), "got %q, %v", doubt, answer)
	})
}

func TestNobodyAnswersForAFreeAddress(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addNode("node1")
		r.addHost("host", netip.MustParseAddr("10.99.0.51"), netip.MustParseAddr("fd99::51"))
		start := time.Now()
		equal(t, "conflict", n.probe(addr, params50).Conflict, false)
		took := time.Since(start)
		check.That(t, took >= 150*time.Millisecond, "three rounds of 50 ms took %s", took)
	})
}

func TestOfTwoNodesThatProbeAtOnceAtMostOneSucceeds(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		a, b := r.addNode("node1"), r.addNode("node2")
		fromA, fromB := startCapture(t, r.network, a.port), startCapture(t, r.network, b.port)
		answers := make(chan Answer)
		// On a busy machine one may begin when the other has finished.
		check.Becomes(t, patience, "both probe at once", func() bool {
			fromA.reset()
			fromB.reset()
			go func() { answers <- a.probe(addr, params50) }()
			second := b.probe(addr, params50)
			first := <-answers
			if first.Conflict {
				equal(t, "first meets", first.MAC.String(), b.mac.String())
			}
			if second.Conflict {
				equal(t, "second meets", second.MAC.String(), a.mac.String())
			}
			if first.Conflict || second.Conflict {
				return true
			}
			// At once is: each began before the other's last probe.
			as, bs := fromA.list(probeFrom(a.mac)), fromB.list(probeFrom(b.mac))
			if len(as) > 1 && len(bs) > 1 && as[0].Time.Before(bs[len(bs)-1].Time) && bs[0].Time.Before(as[len(as)-1].Time) {
				t.Fatal("both found the address free")
			}
			return false
		})
	})
}

// probeFrom matches what a node sends while it probes.
func probeFrom(mac net.HardwareAddr) func(capture.Frame) bool {
	return func(f capture.Frame) bool {
		return bytes.Equal(f.Source, mac) && (f.Type == unix.ETH_P_ARP || f.Kind == "neighbour solicitation")
	}
}

func TestVerdictOnAGuardedZombieIsFencedAndItIsMute(t *testing.T) {
	for name, alive := range map[string]bool{"agent alive": true, "agent dead": false} {
		t.Run(name, func(t *testing.T) {
			families(t, func(t *testing.T, addr netip.Addr) {
				r := newRig(t)
				n1, n2 := r.addNode("node1"), r.addNode("node2")
				client := r.addHost("client", netip.MustParseAddr("10.99.0.51"), netip.MustParseAddr("fd99::51"))
				zombie := n2.addPod("zombie", addr, 100)
				if !alive {
					n2.kill()
				}
				check.Becomes(t, patience, "the zombie answers before the claim", func() bool { return reaches(client.ns, addr) })
				seen := startCapture(t, r.network, n2.port)
				verdict, e := n1.verify(zombie.takeover(200))
				equal(t, "verdict", verdict, Fenced)
				equal(t, "acked by", e.AckMAC.String(), n2.mac.String())

				seen.reset()
				client.forget(t, addr)
				equal(t, "a client reaches the zombie", reaches(client.ns, addr), false)
				for _, other := range []string{"10.99.0.51", "fd99::51"} {
					equal(t, "the zombie reaches "+other, reaches(zombie.ns, netip.MustParseAddr(other)), false)
				}
				equal(t, "frames of the zombie after the ack", len(seen.list(from(zombie.mac, addr))), 0)
			})
		})
	}
}

func TestTakeOverWithTheNewLeaseInstalled(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n1, n2 := r.addNode("node1"), r.addNode("node2")
		zombie := n2.addPod("zombie", addr, 100)
		owner := n1.addPod("owner", addr, 200)
		check.OK(t, owner.ns.SetUp("eth0", false)) // as it is during an ADD
		v := zombie.takeover(200)
		verdict, _ := n1.verify(v)
		equal(t, "verdict", verdict, Fenced)
		check.OK(t, n1.seg.ClaimAndConfirm(t.Context(), v.Claim))

		h := r.addHost("host", addr)
		v.Claim.Token = 300
		owner.lease(300)
		verdict, e := n1.verify(v)
		equal(t, "R1: verdict with a stranger", verdict, Answered)
		equal(t, "MAC", e.Answer.MAC.String(), h.mac.String())
	})
}

func TestClaimFencesAZombieOnTheClaimingNode(t *testing.T) {
	r := newRig(t)
	n := r.addNode("node1")
	zombie := n.addPod("zombie", rig4, 100)
	check.OK(t, n.seg.Claim(t.Context(), zombie.takeover(200).Claim))
	equal(t, "fenced", check.Value(n.kernel.Leases.Fenced(zombie.key()))(t), true)

	verdict, _ := n.verify(zombie.takeover(200))
	equal(t, "verdict while its slot lives", verdict, Unknown)
	check.OK(t, n.kernel.Guards.Kill(zombie.slot))
	v := zombie.takeover(200)
	v.SlotDead = true
	verdict, _ = n.verify(v)
	equal(t, "verdict when its slot is dead", verdict, Fenced)
}

func TestVerdictOnASilentAddressNeedsHearing(t *testing.T) {
	r := newRig(t)
	n1, n2, n3 := r.addNode("node1"), r.addNode("node2"), r.addNode("node3")
	gone := n2.addPod("gone", rig4, 100)
	neighbour := n3.addPod("neighbour", netip.MustParseAddr("10.99.0.60"), 150)
	check.OK(t, r.network.SetUp(n2.port, false)) // node2 is cut off

	verdict, _ := n1.verify(gone.takeover(200))
	equal(t, "R2: verdict before anybody was heard", verdict, Unknown)

	check.OK(t, n3.seg.Claim(t.Context(), neighbour.holding(150).claim()))
	check.Becomes(t, patience, "node1 hears node3", func() bool {
		_, ok, err := n1.kernel.Sightings.Heard(uint32(n1.parent))
		return err == nil && ok
	})
	verdict, _ = n1.verify(gone.takeover(200))
	equal(t, "verdict after another node was heard", verdict, Silent)
}

func TestVerdictOfADeafNodeIsUnknownUntilTheSegmentHeals(t *testing.T) {
	r := newRig(t)
	n1, n2 := r.addNode("node1"), r.addNode("node2")
	zombie := n2.addPod("zombie", rig4, 100)

	check.OK(t, r.network.SetUp(n1.port, false))
	verdict, e := n1.verify(zombie.takeover(200))
	equal(t, "R2: verdict without carrier", verdict, Unknown)
	equal(t, "carrier", e.Carrier, false)

	check.OK(t, r.network.SetUp(n1.port, true))
	// The cable is in, but the switch does not forward.
	r.setForwarding(n1.port, false)
	verdict, e = n1.verify(zombie.takeover(200))
	equal(t, "R2: verdict of a deaf node", verdict, Unknown)
	equal(t, "carrier", e.Carrier, true)
	equal(t, "unanswered rounds", e.Unanswered, 3)

	r.setForwarding(n1.port, true)
	verdict, _ = n1.verify(zombie.takeover(200))
	equal(t, "verdict after healing", verdict, Fenced)

	n1.detachObserver()
	verdict, _ = n1.verify(zombie.takeover(200))
	equal(t, "R2: verdict without observer", verdict, Unknown)
}

// The verifier hears others, but its frames reach nobody. Without a canary, it would take the address of
// a pod that lives.
func TestVerdictOfAMuteNodeIsUnknownUntilTheSegmentHeals(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n1, n2, n3 := r.addNode("node1"), r.addNode("node2"), r.addNode("node3")
		zombie := n2.addPod("zombie", addr, 100)
		neighbour := n3.addPod("neighbour", addr.Next(), 150)
		check.OK(t, n3.seg.Claim(t.Context(), neighbour.holding(150).claim()))
		check.Becomes(t, patience, "node1 hears node3", func() bool {
			_, ok, err := n1.kernel.Sightings.Heard(uint32(n1.parent))
			return err == nil && ok
		})
		r.mute(n1.port, true)
		verdict, e := n1.verify(zombie.takeover(200))
		equal(t, "R2: verdict of a mute node", verdict, Unknown)
		equal(t, "unanswered rounds", e.Unanswered, 3)
		equal(t, "another node was heard", e.Heard, true)
		equal(t, "the zombie is fenced", n2.isFenced(zombie), false)
		equal(t, "the metric says that it is mute", check.Value(n1.seg.Hearing())(t).Mute, true)

		r.mute(n1.port, false)
		verdict, _ = n1.verify(zombie.takeover(200))
		equal(t, "verdict after healing", verdict, Fenced)
		check.OK(t, r.network.SetUp(n2.port, false))
		verdict, e = n1.verify(zombie.takeover(300))
		equal(t, "verdict once the node of the zombie is off", verdict, Silent)
		equal(t, "the canary", e.Canary, neighbour.addr)
	})
}

// With a MAC that moves with the address, two zombies have the same one.
func TestOfTwoZombiesWithOneMACOnlyTheAckOfTheLastHolderCounts(t *testing.T) {
	r := newRig(t)
	n1 := r.addNode("node1")
	older := r.addNode("node2").addPodWithMAC("older", rig4, 100, rigMAC)
	last := r.addNode("node3").addPodWithMAC("last", rig4, 200, rigMAC)
	// The last holder does not hear the claim. The older one does, and would acknowledge it by its MAC.
	r.setForwarding(last.node.port, false)
	verdict, e := n1.verify(last.takeover(300))
	equal(t, "acked", e.Acked, false)
	equal(t, "R1: verdict", verdict == Fenced, false)
	equal(t, "the older zombie is fenced", older.node.isFenced(older), true)
	equal(t, "the last one is not", last.node.isFenced(last), false)

	r.setForwarding(last.node.port, true)
	verdict, e = n1.verify(last.takeover(301))
	equal(t, "verdict once it hears", verdict, Fenced)
	equal(t, "acked by", e.AckMAC.String(), last.node.mac.String())
}

// The claim of a third zombie does not reach it, but its answers reach the verifier.
func TestVerdictFindsALivingZombieWithTheMACOfAFencedOne(t *testing.T) {
	r := newRig(t)
	n1 := r.addNode("node1")
	last := r.addNode("node2").addPodWithMAC("last", rig4, 200, rigMAC)
	unguarded := r.addHostWithMAC("host", rigMAC, rig4)
	verdict, e := n1.verify(last.takeover(300))
	equal(t, "acked", e.Acked, true)
	equal(t, "verdict", verdict, Answered)
	equal(t, "MAC", e.Answer.MAC.String(), unguarded.mac.String())
}

// The lease of an ADD is installed with the MAC of the zombie whose address it takes over.
func TestTakeOverHearsAZombieWithItsOwnMAC(t *testing.T) {
	for name, guarded := range map[string]bool{"which acknowledges": true, "which is not guarded": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			n1 := r.addNode("node1")
			v := Verification{
				Claim: Claim{Addr: rig4, Network: rigNetwork, Token: 300, PreviousToken: 200, PreviousMAC: rigMAC},
				Probe: params50, OthersShare: true,
			}
			want := Fenced
			if guarded {
				r.addNode("node2").addPodWithMAC("zombie", rig4, 200, rigMAC)
			} else {
				r.addHostWithMAC("host", rigMAC, rig4)
				want = Answered
			}
			ours := bpf.Lease{Token: 300, Network: rigNetwork, Slot: 9, MAC: rigMAC, Flags: bpf.FlagDown}
			check.OK(t, n1.kernel.Leases.Install(n1.seg.key(rig4), ours))
			verdict, e := n1.verify(v)
			check.That(t, verdict == want, "verdict %s (%s), want %s", verdict, e, want)
		})
	}
}
