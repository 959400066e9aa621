// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/check"
)

func TestObserverRecordsWhoSpeaksForWhichAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		frame []byte
		key   Key
		kind  Kind
		mac   net.HardwareAddr
	}{
		"ARP request":           {arpFrame(remoteMAC, far4, addr4), key(far4), KindARP, remoteMAC},
		"ARP reply to a probe":  {arpReply(none4), key(far4), KindARPReply, remoteMAC},
		"ARP reply to others":   {arpReply(far4), key(far4), KindARP, remoteMAC},
		"ARP, VID 0":            {tagged(0, arpFrame(remoteMAC, far4, addr4)), key(far4), KindARP, remoteMAC},
		"ARP through a proxy":   {eth(broadcast, otherMAC, etherARP, arp(remoteMAC, far4, addr4)), key(far4), KindARP, remoteMAC},
		"NA with option":        {eth(broadcast, otherMAC, etherIPv6, ipv6(far6, local6, nextICMPv6, na(far6, remoteMAC))), key(far6), KindNA, remoteMAC},
		"NA without option":     {eth(broadcast, remoteMAC, etherIPv6, ipv6(far6, local6, nextICMPv6, na(far6, nil))), key(far6), KindNA, remoteMAC},
		"NA behind hop-by-hop":  {eth(broadcast, remoteMAC, etherIPv6, ipv6(far6, local6, nextHop, extension(nextICMPv6), na(far6, nil))), key(far6), KindNA, remoteMAC},
		"NS from its own":       {eth(broadcast, remoteMAC, etherIPv6, ipv6(far6, local6, nextICMPv6, ns(addr6))), key(far6), KindNS, remoteMAC},
		"NA of a link-local":    {eth(broadcast, remoteMAC, etherIPv6, ipv6(local6, far6, nextICMPv6, na(local6, nil))), key(local6), KindNA, remoteMAC},
		"NS from a link-local":  {eth(broadcast, remoteMAC, etherIPv6, ipv6(local6, far6, nextICMPv6, ns(far6))), key(local6), 0, nil},
		"ARP probe, apart":      {arpProbe(remoteMAC, far4), key(far4), KindARPProbe, remoteMAC},
		"DAD, apart":            {dadFrame(remoteMAC, far6), key(far6), KindDAD, remoteMAC},
		"NA of a v4-mapped one": {eth(broadcast, remoteMAC, etherIPv6, ipv6(local6, far6, nextICMPv6, icmpv6(136, mapped(far4)))), key(far4), 0, nil},
		"IPv4":                  {udpTo(addr4, remoteMAC, far4), key(far4), 0, nil},
		"another VLAN":          {tagged(100, arpFrame(remoteMAC, far4, addr4)), key(far4), 0, nil},
		"ARP cut":               {arpFrame(remoteMAC, far4, addr4)[:41], key(far4), 0, nil},
	} {
		for _, where := range []Where{WhereObserverIngress, WhereObserverEgress} {
			t.Run(name+" at "+where.String(), func(t *testing.T) {
				b := newBench(t, setup{})
				verdict, _ := b.run(where, tc.frame)
				equal(t, "verdict", verdict, pass)
				s, ok, err := b.Sightings.Last(tc.key)
				check.OK(t, err)
				equal(t, "seen", ok, tc.kind != 0)
				if tc.kind.Tentative() {
					equal(t, "spoken", s.LastSeen, 0)
					equal(t, "probed by", s.ProbeMAC.String(), tc.mac.String())
				} else if ok {
					equal(t, "MAC", s.MAC.String(), tc.mac.String())
					equal(t, "kind", s.Kind, tc.kind)
					speakers := check.Value(b.Sightings.Speakers(tc.key.Segment, tc.key.Addr.Is4(), 1))(t)
					equal(t, "speakers", len(speakers) == 1, tc.key.Addr != local6) // a pod of this node may have that one
					age := Now() - s.LastSeen
					check.That(t, age >= 0 && age <= 60e9, "last seen %s ago", age)
				}
			})
		}
	}
}

func TestAProbeDoesNotHideWhoAnswered(t *testing.T) {
	b := newBench(t, setup{})
	b.run(WhereObserverIngress, arpProbe(otherMAC, far4))
	b.run(WhereObserverIngress, arpFrame(remoteMAC, far4, far4))
	b.run(WhereObserverIngress, arpProbe(podMAC, far4))
	s, _, err := b.Sightings.Last(key(far4))
	check.OK(t, err)
	equal(t, "speaker", s.MAC.String(), remoteMAC.String())
	equal(t, "prober", s.ProbeMAC.String(), podMAC.String())
}

func TestHowLongAgoSomebodySpoke(t *testing.T) {
	b := newBench(t, setup{})
	b.run(WhereObserverIngress, arpProbe(remoteMAC, addr4))
	b.run(WhereObserverIngress, arpFrame(remoteMAC, far4, addr4))
	equal(t, "spoke within an hour", b.Sightings.Within(key(far4), time.Hour), true)
	equal(t, "spoke within no time", b.Sightings.Within(key(far4), 0), false)
	equal(t, "only asked", b.Sightings.Within(key(addr4), time.Hour), false)
	equal(t, "never seen", b.Sightings.Within(key(far6), time.Hour), false)
}

func TestEveryoneIsAHitOnAWatchedAddress(t *testing.T) {
	for _, where := range []Where{WhereObserverIngress, WhereObserverEgress} {
		for kind, frame := range map[Kind][]byte{
			KindARP: arpFrame(remoteMAC, far4, addr4),
			KindNA:  naFrame(remoteMAC, far6),
			KindNS:  eth(broadcast, remoteMAC, etherIPv6, ipv6(far6, local6, nextICMPv6, ns(addr6))),
		} {
			t.Run(kind.String()+" at "+where.String(), func(t *testing.T) {
				b := newBench(t, setup{})
				watched := far4
				if kind != KindARP {
					watched = far6
				}
				check.OK(t, b.Leases.Install(key(watched), Lease{}))
				b.expect(where, frame, pass, ResultHit)
				s := b.state(watched)
				equal(t, "hits", s.Hits, 1)
				equal(t, "probes", s.Probes, 0)
				equal(t, "by", s.HitMAC.String(), remoteMAC.String())
				equal(t, "kind", s.HitKind, kind)
				equal(t, "where", s.HitWhere, where)
				e := b.events.next()
				equal(t, "type", e.Type, EventHit)
				equal(t, "where", e.Where, where)
				equal(t, "kind", e.Kind, kind)
				equal(t, "at", e.At, s.LastHit)
			})
		}
	}
}

// A move of a virtual address is an announcement, and no answer.
func TestAHitTellsAnnouncementsFromOtherFrames(t *testing.T) {
	toAll := func(b []byte) []byte { // of an NA of naFrame
		all := netip.MustParseAddr("ff02::1").As16()
		b = slices.Clone(b)
		copy(b[14+24:], all[:])
		return b
	}
	for name, tc := range map[string]struct {
		frame     []byte
		announces bool
	}{
		"a gratuitous ARP": {arpFrame(remoteMAC, far4, far4), true},
		"an ARP request":   {arpFrame(remoteMAC, far4, addr4), false},
		"an answer to NS":  {naFrame(remoteMAC, far6), false},
		"an NA to all":     {toAll(naFrame(remoteMAC, far6)), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, setup{})
			for _, a := range []netip.Addr{far4, far6} {
				check.OK(t, b.Leases.Install(key(a), Lease{}))
			}
			b.expect(WhereObserverEgress, tc.frame, pass, ResultHit)
			e := b.events.next()
			equal(t, "announces", e.Announces, tc.announces)
			equal(t, "a kind of its own", e.Kind == KindARP || e.Kind == KindNA, true)
		})
	}
}

// Some cards and switches return the parent's probes. A pod on ipvlan has the parent's MAC, and answers.
func TestAProbeThatComesBackIsNobodys(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.Leases.Install(key(far4), Lease{}))
	b.expect(WhereObserverIngress, arpProbe(parentMAC, far4), pass)
	equal(t, "seen after a probe", has(b.Sightings.Last(key(far4)))(t), false)
	b.expect(WhereObserverIngress, arpFrame(parentMAC, far4, addr4), pass, ResultHit)
	equal(t, "seen after an answer", has(b.Sightings.Last(key(far4)))(t), true)
}

// An agent that asks a canary does not want its address, so it takes nothing from who probes it.
func TestAQuestionToACanaryIsNoProbe(t *testing.T) {
	for _, addr := range []netip.Addr{far4, far6} {
		probe := check.Value(frames.Probe(remoteMAC, nil, addr))(t)
		question := check.Value(frames.Question(remoteMAC, addr))(t)
		for _, where := range []Where{WhereObserverIngress, WhereObserverEgress} {
			b := newBench(t, setup{})
			check.OK(t, b.Leases.Install(key(addr), Lease{}))
			b.expect(where, question, pass)
			equal(t, "probes", b.state(addr).Probes, 0)
			b.expect(where, probe, pass, ResultHit)
			equal(t, "probes", b.state(addr).Probes, 1)
		}
	}
}

func TestTentativeHitsAreCountedApart(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.Leases.Install(key(far4), Lease{}))
	b.run(WhereObserverIngress, arpProbe(remoteMAC, far4))
	b.run(WhereObserverIngress, arpProbe(remoteMAC, far4))
	s := b.state(far4)
	equal(t, "hits", s.Hits, 0)
	equal(t, "probes", s.Probes, 2)
	equal(t, "kind", s.ProbeKind, KindARPProbe)
	equal(t, "by", s.ProbeMAC.String(), remoteMAC.String())
}

// A switch or a proxy may answer each probe with such a frame, and two of them would end an ADD.
func TestAMalformedProbeIsCountedAndNoEvidence(t *testing.T) {
	reply := arpProbe(remoteMAC, far4)
	reply[21] = 2
	withSource := icmpv6(135, far6.AsSlice(), []byte{1, 1}, remoteMAC)
	for name, tc := range map[string]struct {
		frame   []byte
		addr    netip.Addr
		results []Result
	}{
		"the ARP sender is not the Ethernet source": {eth(broadcast, otherMAC, etherARP, arp(remoteMAC, none4, far4)), far4, []Result{ResultMalformed}},
		"an ARP reply of 0.0.0.0":                   {reply, far4, nil},
		"DAD with a source link-layer address":      {eth(broadcast, remoteMAC, etherIPv6, ipv6(none6, far6, nextICMPv6, withSource)), far6, []Result{ResultMalformed}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, setup{})
			check.OK(t, b.Leases.Install(key(tc.addr), Lease{}))
			for range 2 {
				b.expect(WhereObserverIngress, tc.frame, pass, tc.results...)
			}
			equal(t, "probes", b.state(tc.addr).Probes, 0)
			equal(t, "seen", has(b.Sightings.Last(key(tc.addr)))(t), false)
		})
	}
}

func TestAHoldersOwnFramesAreNoHit(t *testing.T) {
	b := newBench(t, setup{}, addr4, addr6)
	b.expect(WhereObserverEgress, arpFrame(podMAC, addr4, far4), pass)
	b.expect(WhereObserverIngress, arpFrame(podMAC, addr4, far4), pass) // come back from a switch
	b.expect(WhereObserverEgress, naFrame(podMAC, addr6), pass)
	b.expect(WhereObserverIngress, arpFrame(remoteMAC, addr4, far4), pass, ResultHit)
}

func TestTheNewHoldersFramesAreNoHitOnAFencedAddress(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.fence(addr4)
	b.expect(WhereObserverIngress, arpFrame(remoteMAC, addr4, addr4), pass)
	equal(t, "hits", b.state(addr4).Hits, 0)
	t.Run("but are on a watched one that was fenced here before", func(t *testing.T) {
		b.t = t
		check.OK(t, b.Leases.Remove(key(addr4)))
		check.OK(t, b.Leases.Install(key(addr4), Lease{}))
		b.expect(WhereObserverIngress, arpFrame(remoteMAC, addr4, addr4), pass, ResultHit)
	})
}

func TestHitEventsAreLimitedHitsAreCounted(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.Leases.Install(key(far4), Lease{}))
	moved := b.counted(func() {
		for range 1000 {
			b.run(WhereObserverIngress, arpFrame(remoteMAC, far4, far4))
		}
	})
	equal(t, "hits", b.state(far4).Hits, 1000)
	n := moved[Counter{WhereObserverIngress, ResultSuppressed}]
	check.That(t, n >= 500 && n != 1000, "%d of 1000 events suppressed", n)
}

func TestOwnProbesAreReflectedAndNobodys(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.Leases.Install(key(far4), Lease{}))
	check.OK(t, b.Leases.Install(key(far6), Lease{}))
	for _, frame := range [][]byte{arpProbe(parentMAC, far4), dadFrame(parentMAC, far6)} {
		moved := b.counted(func() {
			verdict, _, _ := b.runMarked(WhereObserverEgress, frame, ProbeMark)
			equal(t, "verdict", verdict, pass)
		})
		equal(t, "reflected", moved[Counter{WhereObserverEgress, ResultReflected}], 1)
		verdict, _, left := b.runMarked(WhereObserverIngress, frame, ProbeMark)
		equal(t, "verdict of the reflection", verdict, pass)
		equal(t, "mark of the reflection", left, 0)
	}
	for _, addr := range []netip.Addr{far4, far6} {
		equal(t, "probes", b.state(addr).Probes, 0)
		equal(t, "seen", has(b.Sightings.Last(key(addr)))(t), false)
	}
	t.Run("a mark on a probe of another MAC means nothing", func(t *testing.T) {
		moved := b.counted(func() { b.runMarked(WhereObserverEgress, arpProbe(podMAC, far4), ProbeMark) })
		equal(t, "reflected", moved[Counter{WhereObserverEgress, ResultReflected}], 0)
		equal(t, "probes", b.state(far4).Probes, 1)
	})
	t.Run("a mark on an announcement means nothing", func(t *testing.T) {
		moved := b.counted(func() { b.runMarked(WhereObserverEgress, arpFrame(remoteMAC, far4, far4), ProbeMark) })
		equal(t, "reflected", moved[Counter{WhereObserverEgress, ResultReflected}], 0)
		equal(t, "hits", b.state(far4).Hits, 1)
	})
}

func TestABridgePortReflectsNothing(t *testing.T) {
	b := newBench(t, setup{bridgePort: true})
	moved := b.counted(func() { b.runMarked(WhereObserverEgress, arpProbe(parentMAC, far4), ProbeMark) })
	equal(t, "counters moved", len(moved), 0)
}

func TestObserverEgressCatchesWhatGetsAroundTheGuard(t *testing.T) {
	b := newBench(t, setup{}, addr4, addr6)
	b.bind(other4, 2)
	frames := map[string][]byte{
		"IPv4":                udpFrom(addr4),
		"IPv4, stacked MAC":   eth(remoteMAC, mac("02:00:00:00:07:07"), etherIPv4, ipv4(addr4, far4)),
		"ARP":                 arpFrame(podMAC, addr4, far4),
		"ARP probe":           arpProbe(podMAC, addr4),
		"IPv6":                udpFrom(addr6),
		"NA from link-local":  ndFrom(local6, nextICMPv6, na(addr6, podMAC)),
		"NA behind a header":  ndFrom(local6, nextHop, extension(nextICMPv6), na(addr6, podMAC)),
		"DAD":                 dadFrame(podMAC, addr6),
		"IPv4 with VID 0 tag": tagged(0, udpFrom(addr4)),
	}
	for name, frame := range frames {
		verdict, _ := b.run(WhereObserverEgress, frame)
		equal(t, name+" while nothing is fenced", verdict, pass)
	}
	b.fence(addr4)
	b.fence(addr6)
	for name, frame := range frames {
		t.Run(name, func(t *testing.T) { b.t = t; b.expect(WhereObserverEgress, frame, drop, ResultDropFenced) })
	}
	t.Run("others pass", func(t *testing.T) {
		b.t = t
		b.expect(WhereObserverEgress, udpFrom(far4), pass)
		b.expect(WhereObserverEgress, eth(remoteMAC, otherMAC, etherIPv4, ipv4(other4, far4)), pass)
		b.expect(WhereObserverEgress, tagged(100, udpFrom(addr4)), pass)
	})
	t.Run("a probe of a pod passes for no probe of ours", func(t *testing.T) {
		for _, frame := range [][]byte{arpProbe(podMAC, addr4), arpProbe(remoteMAC, addr4), dadFrame(podMAC, addr6)} {
			verdict, _, _ := b.runMarked(WhereObserverEgress, frame, ProbeMark)
			equal(t, "verdict", verdict, drop)
		}
	})
	t.Run("our own probe for it passes", func(t *testing.T) {
		verdict, _, _ := b.runMarked(WhereObserverEgress, arpProbe(parentMAC, addr4), ProbeMark)
		equal(t, "verdict", verdict, pass)
	})
	t.Run("unreadable is dropped", func(t *testing.T) {
		b.t = t
		b.expect(WhereObserverEgress, tagged(0, udpFrom(addr4)[:33]), drop, ResultDropMalformed)
		b.expect(WhereObserverEgress, tagged(0, tagged(0, tagged(0, udpFrom(addr4)))), drop, ResultDropMalformed)
		b.expect(WhereObserverEgress, tagged(0, tagged(0, tagged(5, udpFrom(addr4)))), drop, ResultDropMalformed)
		b.expect(WhereObserverEgress, tagged(7, tagged(0, tagged(0, udpFrom(addr4)))), pass)
	})
	t.Run("a pretender for a living pod's address", func(t *testing.T) {
		b.t = t
		b.expect(WhereObserverEgress, eth(remoteMAC, podMAC, etherIPv4, ipv4(other4, far4)), drop, ResultDropMAC)
		b.expect(WhereObserverEgress, arpFrame(podMAC, other4, far4), drop, ResultDropMAC, ResultHit)
		b.expect(WhereObserverEgress, eth(remoteMAC, parentMAC, etherIPv4, ipv4(other4, far4)), pass) // routed by the node
	})
}

func TestObserverEgressDropsADeadSlotsAddress(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.expect(WhereObserverEgress, udpFrom(addr4), pass)
	check.OK(t, b.Guards.Kill(1))
	b.expect(WhereObserverEgress, udpFrom(addr4), drop, ResultDropDead)
}

func TestHearing(t *testing.T) {
	from := func(src net.HardwareAddr, key ClaimKey) []byte {
		return claimFrame(t, claim.Frame{Network: network, Addr: far4, Token: 5}, broadcast, src, key)
	}
	for name, tc := range map[string]struct {
		frame          []byte
		heard, vouched bool
	}{
		"a valid claim of another node":     {from(remoteMAC, keyA), true, true},
		"under the previous key":            {from(remoteMAC, keyB), true, true},
		"a forged claim proves nothing":     {from(remoteMAC, keyC), false, false},
		"our own claim, come back, neither": {from(parentMAC, keyA), false, false},
		"nor does ARP":                      {arpFrame(remoteMAC, far4, addr4), false, false},
		"an ack":                            {signed(t, claim.Frame{Flags: claim.FlagAck, Network: network, Addr: addr4, Token: 5}, keyA), true, false},
		"an old claim for a held address":   {remoteClaim(t, addr4, 5), true, false},
		"a claim that fences":               {remoteClaim(t, addr4, 500), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, setup{}, addr4)
			b.run(WhereObserverIngress, tc.frame)
			at, heard, err := b.Sightings.Heard(testSegment)
			check.OK(t, err)
			equal(t, "heard", heard, tc.heard)
			age := Now() - at
			check.That(t, !heard || age >= 0 && age <= 60e9, "heard %s ago", age)
			b.run(WhereObserverIngress, arpFrame(otherMAC, far4, addr4))
			vouched := check.Value(b.Sightings.Vouched(testSegment, true, time.Minute, 1))(t)
			equal(t, "vouched for", len(vouched) == 1 && vouched[0] == far4, tc.vouched)
			equal(t, "vouched for just now", len(check.Value(b.Sightings.Vouched(testSegment, true, 0, 1))(t)), 0)
		})
	}
}

// Both segments share an entry of hearing_fresh, and both claims come within a few jiffies.
func TestWhatOneSegmentHearsIsNoEvidenceForAnother(t *testing.T) {
	const other = testSegment + 1024
	b := newBench(t, setup{})
	check.OK(t, b.maps.Hearing.Put(uint32(other), uint64(0)))
	frame := remoteClaim(t, far4, 5)
	b.run(WhereObserverIngress, frame)
	equal(t, "heard on the other segment", has(b.Sightings.Heard(other))(t), false)
	observer := check.Value(b.Observers.load(other))(t)
	t.Cleanup(observer.Close)
	b.run(WhereObserverIngress, frame)
	b.observer = observer
	b.run(WhereObserverIngress, frame)
	equal(t, "heard on the other segment after its claim", has(b.Sightings.Heard(other))(t), true)
}

// both has the node reach the segment through a second parent.
func (r *rig) both() (second int) {
	r.t.Helper()
	spare := r.wire.plug("spare")
	spare.down("p0")
	check.OK(r.t, spare.Links().LinkSetName(spare.device("p0"), "p1"))
	spare.move("p1", r.node)
	r.node.up("p1")
	second = r.node.index("p1")
	r.node.do(func() error { return r.Observers.Attach(second) })
	return second
}

// R2: both may be cut off from all others.
func TestTwoParentsOfANodeOnOneSegmentAreNoEvidenceForEachOther(t *testing.T) {
	r := newRig(t)
	second := r.both()
	heard := func() bool { return has(r.Sightings.Heard(uint32(r.parent)))(t) }
	in := r.node.socket("p0", allProtocols)
	out := r.node.socket("p1", etherClaim)
	f := claim.Frame{Network: network, Addr: far4, Token: 5}
	tell := func() {
		out.send(claimFrame(t, f, broadcast, r.node.mac("p1"), keyA))
		out.send(arpFrame(r.node.mac("p1"), far4, other4))
		_, ok := in.until(arpFrom(far4))
		check.Must(t, ok, "the marker did not come")
	}
	tell()
	equal(t, "heard its own other parent", heard(), false)
	check.OK(t, r.Close())
	r.Kernel = openKernel(t, r.dir)
	tell()
	equal(t, "heard it after a restart", heard(), false)
	r.unobserve(second)
	tell()
	equal(t, "heard what is no parent any more", heard(), true)
}

// A proxy may answer first, and another one last; who answers in between is the conflict.
func TestWhoSpeaksBetweenOthersIsToldOf(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.Leases.Install(key(far4), Lease{}))
	for _, by := range []string{otherMAC.String(), remoteMAC.String(), podMAC.String()} {
		b.run(WhereObserverIngress, arpFrame(mac(by), far4, addr4))
		equal(t, "told of", b.events.next().MAC.String(), by)
	}
}

func TestManyWhoSpeakByTurnsDoNotFloodTheBuffer(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.Leases.Install(key(far4), Lease{}))
	const rounds = 500
	began := Now()
	moved := b.counted(func() {
		for range rounds {
			b.run(WhereObserverIngress, arpFrame(remoteMAC, far4, addr4))
			b.run(WhereObserverIngress, arpFrame(otherMAC, far4, addr4))
		}
	})
	const interval, each = 100e6, 9
	intervals := uint64((Now()-began)/interval) + 1
	told := 2*rounds - moved[Counter{WhereObserverIngress, ResultSuppressed}]
	equal(t, "hits", moved[Counter{WhereObserverIngress, ResultHit}], 2*rounds)
	check.That(t, told <= intervals*each, "%d events in %d intervals", told, intervals)
}

// The interface of an ADD is down. Another node may have a holder of the address with the same MAC.
func TestWhileTheInterfaceIsDownItsMACIsForeignToo(t *testing.T) {
	b := newBench(t, setup{})
	down := Lease{Token: heldToken, Network: network, Slot: 1, MAC: podMAC, Flags: FlagDown}
	check.OK(t, b.Leases.Install(key(addr4), down))
	b.expect(WhereObserverIngress, arpFrame(podMAC, addr4, far4), pass, ResultSighting, ResultHit)
	equal(t, "told of", b.events.next().MAC.String(), podMAC.String())
	b.bind(addr4, 1) // the interface comes up
	b.expect(WhereObserverIngress, arpFrame(podMAC, addr4, far4), pass, ResultSighting)
	equal(t, "hits", b.state(addr4).Hits, 1)
}

// The frames of a holder here must not show that a later holder with its MAC was heard.
func TestTheSightingOfAHolderEndsWithItsLease(t *testing.T) {
	for name, tc := range map[string]struct {
		by    net.HardwareAddr
		flags LeaseFlags
		stays bool
	}{
		"of the holder":   {podMAC, 0, false},
		"of another host": {remoteMAC, 0, true},
		"of another host, while the interface was always down": {podMAC, FlagDown, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, setup{})
			check.OK(t, b.Leases.Install(key(addr4), Lease{Token: heldToken, Network: network, Slot: 1, MAC: podMAC, Flags: tc.flags}))
			b.run(WhereObserverEgress, arpFrame(tc.by, addr4, far4))
			check.OK(t, b.Leases.Remove(key(addr4)))
			equal(t, "sighting", has(b.Sightings.Last(key(addr4)))(t), tc.stays)
		})
	}
}

// Linux believes ARP of hardware type 6 (IEEE 802) as well (net/ipv4/arp.c arp_process).
func TestARPOfHardwareType6IsHeard(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	frame := arpFrame(remoteMAC, addr4, far4)
	frame[14+1] = 6
	b.expect(WhereObserverIngress, frame, pass, ResultSighting, ResultHit)
	b.bind(far4, 2)
	forged := arpFrame(podMAC, far4, addr4)
	forged[14+1] = 6
	b.expect(WhereGuardEgress, forged, drop, ResultDropSlot)
}
