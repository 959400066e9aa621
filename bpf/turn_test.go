// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"net"
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// inTurns is a bench of pod 1, which may take the turn for vip4 and vip6.
func inTurns(t testing.TB, mode SourceMode) *bench {
	t.Helper()
	s := guarded(mode)
	for _, addr := range []netip.Addr{vip4, vip6} {
		s.Prefixes = append(s.Prefixes, netip.PrefixFrom(addr, addr.BitLen()))
	}
	b := newBench(t, setup{sources: s}, addr4, addr6)
	for _, addr := range []netip.Addr{vip4, vip6} {
		check.OK(t, b.Leases.Install(key(addr), Lease{Flags: FlagTurns}))
	}
	return b
}

func turnOf(slot uint32, token uint64) Lease {
	l := Lease{Token: token, Network: network, Slot: slot, MAC: podMAC, Flags: FlagTurns}
	if slot != 1 {
		l.MAC = otherMAC
	}
	return l
}

// announcements are frames by which a pod announces an address.
func announcements() map[netip.Addr][]byte {
	return map[netip.Addr][]byte{vip4: arpFrame(podMAC, vip4, vip4), vip6: naFrame(podMAC, vip6)}
}

func speeches() map[string][]byte {
	return map[string][]byte{
		"IPv4": udpFrom(vip4), "ARP": arpFrame(podMAC, vip4, far4), "ARP probe": arpProbe(podMAC, vip4),
		"IPv6": udpFrom(vip6), "NA": to(remoteMAC, naFrame(podMAC, vip6)), "DAD": dadFrame(podMAC, vip6),
	}
}

func TestAnExclusiveAddressIsSpokenForByTurns(t *testing.T) {
	for _, mode := range []SourceMode{SourcesOff, SourcesObserve, SourcesEnforce} {
		b := inTurns(t, mode)
		passes := func(when string, verdict uint32, why ...Result) {
			t.Helper()
			for name, frame := range speeches() {
				t.Run(name+" "+when, func(t *testing.T) { b.t = t; b.expect(WhereGuardEgress, frame, verdict, why...) })
			}
			b.t = t
			for addr, frame := range announcements() {
				got, _ := b.run(WhereGuardEgress, frame)
				check.Equal(t, got, verdict, "announcement of %s %s: verdict", addr, when)
			}
		}
		install := func(l Lease) {
			t.Helper()
			for _, addr := range []netip.Addr{vip4, vip6} {
				check.OK(t, b.Leases.Install(key(addr), l))
			}
		}
		passes("while nobody has the turn", drop, ResultDropTurn)
		install(turnOf(2, 100))
		passes("while another pod has it", drop, ResultDropTurn)
		install(turnOf(1, 150))
		passes("in its turn", pass)
		check.Is(t, b.Leases.Install(key(vip4), Lease{Token: 149, Flags: FlagTurns}), ErrOlderToken, "nobody's turn with an older token: got")
		install(Lease{Token: 160, Flags: FlagTurns})
		passes("after its turn", drop, ResultDropTurn)
		check.OK(t, b.Leases.RemoveWatch(key(vip4)))
		b.expect(WhereGuardEgress, udpFrom(vip4), drop, ResultDropTurn)
	}
}

func TestAnAnnouncementWithoutTheTurnIsToldToTheAgent(t *testing.T) {
	for addr, frame := range announcements() {
		b := inTurns(t, SourcesEnforce)
		for _, f := range speeches() {
			b.run(WhereGuardEgress, f)
		}
		equal(t, "hits", b.state(addr).Hits, 0)
		b.run(WhereGuardEgress, frame)
		e := b.events.next()
		for e.Type == EventSource {
			e = b.events.next()
		}
		equal(t, "type", e.Type, EventTurn)
		equal(t, "slot", e.Token, 1)
		equal(t, "address", e.Key.Addr, addr)
		equal(t, "MAC", e.MAC.String(), podMAC.String())
		equal(t, "announces", e.Announces, true)
		s := b.state(addr)
		check.That(t, s.HitWhere == WhereGuardEgress && s.HitMAC.String() == podMAC.String(), "the kernel remembers %+v", s)
	}
}

func TestAThirdPodDoesNotAskForTheTurn(t *testing.T) {
	b := newGuardedBench(t, guarded(SourcesEnforce))
	for _, l := range []Lease{{Flags: FlagTurns}, turnOf(2, 100)} {
		why := ResultDropUnleased
		if l.Slot != 0 {
			why = ResultDropSlot
		}
		check.OK(t, b.Leases.Install(key(vip4), l))
		b.expect(WhereGuardEgress, arpFrame(podMAC, vip4, vip4), drop, why)
		equal(t, "hits", b.state(vip4).Hits, 0)
	}
}

func TestAClaimEndsTheTurnAndIsAcked(t *testing.T) {
	b := inTurns(t, SourcesEnforce)
	check.OK(t, b.Leases.Install(key(vip4), turnOf(1, heldToken)))
	b.fence(vip4)
	for _, frame := range [][]byte{udpFrom(vip4), arpFrame(podMAC, vip4, far4)} {
		b.expect(WhereGuardEgress, frame, drop, ResultDropFenced)
	}
	equal(t, "hits", b.state(vip4).Hits, 0)
	b.run(WhereGuardEgress, arpFrame(podMAC, vip4, vip4)) // it wants the turn back
	equal(t, "hits", b.state(vip4).Hits, 1)
}

// Interfaces that the pod stacks on its own send past its guard (keepalived's use_vmac).
func TestTheObserverJudgesTheMACOfVRRPByTurns(t *testing.T) {
	s := guarded(SourcesEnforce)
	s.MACs, s.Allow = []net.HardwareAddr{vrrpMAC}, AllowVRRP|AllowTurns
	s.Prefixes = append(s.Prefixes, netip.PrefixFrom(vip4, 32))
	b := newBench(t, setup{sources: s}, addr4)
	check.OK(t, b.Leases.Install(key(vip4), Lease{Flags: FlagTurns}))
	frames := [][]byte{arpFrame(vrrpMAC, vip4, far4), withSource(vrrpMAC, udpFrom(vip4))}
	for _, frame := range frames {
		b.expect(WhereObserverEgress, frame, drop, ResultDropTurn)
	}
	equal(t, "hits", b.state(vip4).Hits, 0)
	got, _ := b.run(WhereObserverEgress, arpFrame(vrrpMAC, vip4, vip4))
	equal(t, "verdict", got, drop)
	equal(t, "hits", b.state(vip4).Hits, 1)
	for _, frame := range frames { // of another node's pod
		b.expect(WhereGuardIngress, frame, pass)
	}
	l := turnOf(1, 100)
	l.MAC = vrrpMAC
	check.OK(t, b.Leases.Install(key(vip4), l))
	for _, frame := range frames {
		b.expect(WhereObserverEgress, frame, pass)
	}
}

// A pod has the turn while its own address is at another node, whose holder has its MAC. That holder did nothing wrong,
// and any frame from here would take it off the network, so the pod is mute. Another pod takes the turn: VRRP hears
// nothing of a pod that may not use its own address.
func TestATurnDoesNotKeepAMACThatIsElsewhere(t *testing.T) {
	for vip, own := range map[netip.Addr]netip.Addr{vip4: addr4, vip6: addr4} {
		b := newBench(t, setup{}, own)
		l := Lease{Token: heldToken, Network: network, Slot: 1, MAC: podMAC, Flags: FlagSharedMAC}
		check.OK(t, b.Leases.Install(key(own), l))
		check.OK(t, b.Leases.Install(key(vip), turnOf(1, 100)))
		lldp := eth(broadcast, podMAC, 0x88cc, []byte{1, 2, 3})
		frames := [][]byte{announcements()[vip], dadFrame(podMAC, local6), lldp}
		for _, frame := range frames {
			b.expect(WhereGuardEgress, frame, pass)
		}
		b.fence(own)
		for _, frame := range frames {
			b.expect(WhereGuardEgress, frame, drop, ResultDropFenced)
		}
		l.Flags = 0 // the holder elsewhere has a MAC of its own
		check.OK(t, b.Leases.Install(key(own), l))
		for _, frame := range frames {
			b.expect(WhereGuardEgress, frame, pass)
		}
	}
}
