// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func udpFrom(src netip.Addr) []byte {
	if src.Is4() {
		return eth(remoteMAC, podMAC, etherIPv4, ipv4(src, far4))
	}
	return eth(remoteMAC, podMAC, etherIPv6, ipv6(src, far6, nextUDP, udp()))
}

func ndFrom(src netip.Addr, next byte, payload ...[]byte) []byte {
	return eth(remoteMAC, podMAC, etherIPv6, ipv6(src, far6, next, payload...))
}

func TestGuardEgressLetsAPodSpeakForItsOwnAddresses(t *testing.T) {
	b := newBench(t, setup{}, addr4, addr6)
	for name, frame := range map[string][]byte{
		"IPv4":                        udpFrom(addr4),
		"IPv4 tagged with VID 0":      tagged(0, udpFrom(addr4)),
		"IPv4 tagged with VID 100":    tagged(100, udpFrom(addr4)),
		"ARP":                         arpFrame(podMAC, addr4, far4),
		"ARP probe":                   arpProbe(podMAC, addr4),
		"DHCP from 0.0.0.0":           udpFrom(none4),
		"IPv6":                        udpFrom(addr6),
		"IPv6 link-local":             udpFrom(local6),
		"IPv6 unspecified":            udpFrom(none6),
		"NA":                          naFrame(podMAC, addr6),
		"DAD":                         dadFrame(podMAC, addr6),
		"NS from link-local":          ndFrom(local6, nextICMPv6, ns(other6)),
		"NA for link-local":           ndFrom(local6, nextICMPv6, na(local6, podMAC)),
		"NA behind extension headers": ndFrom(addr6, nextHop, extension(nextDest), extension(nextAuth), auth(nextICMPv6), na(addr6, podMAC)),
		"first fragment of an echo":   ndFrom(addr6, nextFragment, fragment(nextICMPv6, 0, true), echo()),
		"later fragment":              ndFrom(addr6, nextFragment, fragment(nextICMPv6, 64, false), na(other6, podMAC)),
		"address that nobody leases":  udpFrom(far4),
		"another protocol":            eth(broadcast, podMAC, 0x88cc, []byte{1, 2, 3}),
	} {
		t.Run(name, func(t *testing.T) { b.t = t; b.expect(WhereGuardEgress, frame, pass) })
	}
}

func TestGuardEgressDropsAFencedAddress(t *testing.T) {
	b := newBench(t, setup{}, addr4, addr6)
	b.fence(addr4)
	b.fence(addr6)
	manyHeaders := [][]byte{}
	for range 7 {
		manyHeaders = append(manyHeaders, extension(nextDest))
	}
	deep := append(slices.Clone(manyHeaders), extension(nextICMPv6), na(addr6, podMAC))
	for name, tc := range map[string]struct {
		frame []byte
		why   Result
	}{
		"IPv4":                              {udpFrom(addr4), ResultDropFenced},
		"IPv4 tagged with VID 0":            {tagged(0, udpFrom(addr4)), ResultDropFenced},
		"IPv4 tagged with VID 100":          {tagged(100, udpFrom(addr4)), ResultDropFenced},
		"IPv4 tagged twice":                 {tagged(0, tagged(0, udpFrom(addr4))), ResultDropFenced},
		"ARP":                               {arpFrame(podMAC, addr4, far4), ResultDropFenced},
		"ARP with another sender MAC":       {arpFrame(otherMAC, addr4, far4), ResultDropFenced},
		"ARP probe":                         {arpProbe(podMAC, addr4), ResultDropFenced},
		"IPv6":                              {udpFrom(addr6), ResultDropFenced},
		"NA":                                {naFrame(podMAC, addr6), ResultDropFenced},
		"NA from link-local":                {ndFrom(local6, nextICMPv6, na(addr6, podMAC)), ResultDropFenced},
		"DAD":                               {dadFrame(podMAC, addr6), ResultDropFenced},
		"NA behind hop-by-hop":              {ndFrom(local6, nextHop, extension(nextICMPv6), na(addr6, podMAC)), ResultDropFenced},
		"NA behind routing and destination": {ndFrom(local6, nextRouting, extension(nextDest), extension(nextICMPv6), na(addr6, podMAC)), ResultDropFenced},
		"NA behind authentication":          {ndFrom(local6, nextAuth, auth(nextICMPv6), na(addr6, podMAC)), ResultDropFenced},
		"NA behind eight headers":           {ndFrom(local6, nextDest, deep...), ResultDropMalformed},
		"NA in a first fragment":            {ndFrom(local6, nextFragment, fragment(nextICMPv6, 0, true), na(addr6, podMAC)), ResultDropMalformed},
		"NA in an atomic fragment":          {ndFrom(local6, nextFragment, fragment(nextICMPv6, 0, false), na(addr6, podMAC)), ResultDropMalformed},
		"IPv4 tagged three times":           {tagged(0, tagged(0, tagged(0, udpFrom(addr4)))), ResultDropMalformed},
		"fragment from it":                  {ndFrom(addr6, nextFragment, fragment(nextUDP, 64, false), udp()), ResultDropFenced},
	} {
		t.Run(name, func(t *testing.T) { b.t = t; b.expect(WhereGuardEgress, tc.frame, drop, tc.why) })
	}
}

// The holder elsewhere has the same MAC, so the switches must not learn it here.
func TestGuardEgressDropsAllOfAMACThatIsElsewhere(t *testing.T) {
	b := newBench(t, setup{}, addr4, addr6)
	frames := map[string][]byte{
		"NS from link-local": ndFrom(local6, nextICMPv6, ns(other6)),
		"DAD of link-local":  dadFrame(podMAC, local6),
		"another protocol":   eth(broadcast, podMAC, 0x88cc, []byte{1, 2, 3}),
	}
	all := func(when string, verdict uint32, why ...Result) {
		for name, frame := range frames {
			t.Run(name+", "+when, func(t *testing.T) { b.t = t; b.expect(WhereGuardEgress, frame, verdict, why...) })
		}
	}
	b.fence(addr4)
	b.fence(addr6)
	all("while the holders have their own MACs", pass)
	share := func(addr netip.Addr, token uint64, flags LeaseFlags) {
		check.OK(t, b.Leases.Install(key(addr), Lease{Token: token, Network: network, Slot: 1, MAC: podMAC, Flags: FlagSharedMAC | flags}))
	}
	share(addr4, heldToken, 0)
	share(addr6, heldToken, 0)
	all("while both addresses are elsewhere", drop, ResultDropFenced)
	share(addr6, 201, FlagUnproven)
	all("while one of the addresses waits for the other", drop, ResultDropFenced)
	share(addr6, 201, 0)
	all("while one of the addresses is here", pass)
}

func TestGuardEgressDropsWhatItCannotRead(t *testing.T) {
	b := newBench(t, setup{})
	whole4, wholeARP, wholeNA := udpFrom(addr4), arpFrame(podMAC, addr4, far4), naFrame(podMAC, addr6)
	odd := slices.Clone(wholeARP)
	odd[14+4] = 8 // hardware addresses of 8 bytes
	for name, frame := range map[string][]byte{
		"IPv4 header cut": tagged(0, whole4[:14+19]), // untagged, the kernel refuses to run it

		"ARP cut":                    wholeARP[:14+27],
		"ARP of another link type":   odd,
		"IPv6 header cut":            tagged(0, wholeNA[:14+39]),
		"NA cut":                     wholeNA[:14+40+23],
		"extension header cut":       ndFrom(local6, nextHop, []byte{nextICMPv6, 0}),
		"extension header too long":  ndFrom(local6, nextHop, []byte{nextICMPv6, 255, 0, 0, 0, 0, 0, 0}),
		"VLAN tag cut":               tagged(0, whole4)[:16],
		"IPv4-mapped source in IPv6": udpFromMapped(addr4),
		"IPv4-mapped target of NA":   ndFrom(local6, nextICMPv6, na(netip.AddrFrom16(addr4.As16()), podMAC)),
	} {
		t.Run(name, func(t *testing.T) { b.t = t; b.expect(WhereGuardEgress, frame, drop, ResultDropMalformed) })
	}
}

func udpFromMapped(addr netip.Addr) []byte {
	return eth(remoteMAC, podMAC, etherIPv6, ipv6(netip.AddrFrom16(addr.As16()), far6, nextUDP, udp()))
}

func TestGuardEgressDropsAnotherSlotsAddress(t *testing.T) {
	b := newBench(t, setup{})
	b.bind(other4, 2)
	b.bind(other6, 2)
	for name, frame := range map[string][]byte{
		"IPv4":      udpFrom(other4),
		"ARP":       arpFrame(podMAC, other4, far4),
		"ARP probe": arpProbe(podMAC, other4),
		"IPv6":      udpFrom(other6),
		"NA":        ndFrom(local6, nextICMPv6, na(other6, podMAC)),
		"DAD":       dadFrame(podMAC, other6),
	} {
		t.Run(name, func(t *testing.T) { b.t = t; b.expect(WhereGuardEgress, frame, drop, ResultDropSlot) })
	}
	t.Run("but not on another segment", func(t *testing.T) {
		b.t = t
		elsewhere := Key{Segment: testSegment + 1, Addr: far4}
		check.OK(t, b.Leases.Install(elsewhere, Lease{Token: 1, Network: network, Slot: 2, MAC: otherMAC}))
		b.expect(WhereGuardEgress, udpFrom(far4), pass)
	})
	t.Run("but a watched address is nobody's", func(t *testing.T) {
		b.t = t
		check.OK(t, b.Leases.Install(key(far6), Lease{}))
		b.expect(WhereGuardEgress, naFrame(podMAC, far6), pass)
	})
}

// A pod may have two interfaces on a segment, and its kernel sends from both addresses by the first. ARP and
// ND would give the address the MAC of the other interface: they are dropped, but are no offence.
func TestAPodSendsFromTheAddressesOfAllItsInterfaces(t *testing.T) {
	const pod = 77
	b := newGuardedBench(t, guarded(SourcesEnforce))
	put := func(index uint32, status, netns uint32) {
		s := check.Value(b.Slots.read(index))(t)
		s.Status, s.Segment, s.Netns = status, testSegment, netns
		check.OK(t, b.Slots.write(index, s))
	}
	put(1, slotAlive, pod)
	packets := [][]byte{udpFrom(other4), fromPod6(other6, nextICMPv6, echo()), eth(remoteMAC, podMAC, etherIPv4, l4(other4, far4, 132, 1, 2, 3, 4))}
	bindings := [][]byte{arpFrame(podMAC, other4, far4), arpProbe(podMAC, other4), fromPod6(addr6, nextICMPv6, na(other6, podMAC)), dadFrame(podMAC, other6)}
	judged := func(packet uint32, why Result, binding Result) {
		t.Helper()
		for _, frame := range packets {
			if packet == pass {
				b.expect(WhereGuardEgress, frame, pass)
				continue
			}
			b.expect(WhereGuardEgress, frame, drop, why)
		}
		for _, frame := range bindings {
			b.expect(WhereGuardEgress, frame, drop, binding)
		}
	}
	put(2, slotAlive, pod+1)
	judged(drop, ResultDropSlot, ResultDropSlot) // of another pod
	put(2, slotAlive, pod)
	before := b.offences(Offence{Slot: 1, Result: ResultDropMAC})
	judged(pass, 0, ResultDropMAC)
	equal(t, "frames against the slot", b.offences(Offence{Slot: 1, Result: ResultDropMAC})-before, 0)

	check.OK(t, b.Sources.Set(2, Sources{Mode: SourcesEnforce, MAC: otherMAC}))
	b.fence(addr4) // the gate is open
	for _, frame := range packets {
		b.expect(WhereObserverEgress, frame, pass)
	}
	b.fence(other4)
	b.expect(WhereGuardEgress, udpFrom(other4), drop, ResultDropFenced)
	check.OK(t, b.Guards.Kill(2))
	b.expect(WhereGuardEgress, fromPod6(other6, nextICMPv6, echo()), drop, ResultDropSlot)
}

func TestGuardOfADeadSlotDropsEverything(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.expect(WhereGuardEgress, udpFrom(addr4), pass)
	check.OK(t, b.Guards.Kill(1))
	for _, frame := range [][]byte{udpFrom(addr4), udpFrom(local6), arpProbe(podMAC, far4), eth(broadcast, podMAC, 0x88cc, []byte{1})} {
		b.expect(WhereGuardEgress, frame, drop, ResultDropDead)
		b.expect(WhereGuardIngress, frame, drop, ResultDropDead)
	}
	equal(t, "dead", check.Value(b.Slots.Dead(1))(t), true)
}

func TestGuardEgressDropsClaimsOfPods(t *testing.T) {
	for _, verify := range []bool{false, true} {
		b := newBench(t, setup{verify: verify})
		b.expect(WhereGuardEgress, remoteClaim(t, addr4, 200), drop, ResultFromPod)
		b.expect(WhereGuardEgress, tagged(0, remoteClaim(t, addr4, 200)), drop, ResultFromPod)
		b.expect(WhereGuardEgress, eth(broadcast, podMAC, etherClaim), drop, ResultFromPod)
	}
}

func TestGuardEgressTakesTheProbeMarkOffAPodsFrame(t *testing.T) {
	b := newBench(t, setup{})
	for mark, want := range map[uint32]uint32{ProbeMark: 0, 7: 7} {
		verdict, _, left := b.runMarked(WhereGuardEgress, arpProbe(podMAC, far4), mark)
		equal(t, "verdict", verdict, pass)
		equal(t, "mark", left, want)
	}
}

func udpTo(dst netip.Addr, by net.HardwareAddr, src netip.Addr) []byte {
	if dst.Is4() {
		return eth(podMAC, by, etherIPv4, ipv4(src, dst))
	}
	return eth(podMAC, by, etherIPv6, ipv6(src, dst, nextUDP, udp()))
}

func TestGuardIngressDropsFramesForOurFencedAddress(t *testing.T) {
	b := newBench(t, setup{}, addr4, addr6)
	frames := map[string][]byte{
		"IPv4":         udpTo(addr4, remoteMAC, far4),
		"IPv4, VID 0":  tagged(0, udpTo(addr4, remoteMAC, far4)),
		"ARP request":  arpFrame(remoteMAC, far4, addr4),
		"ARP probe":    arpProbe(remoteMAC, addr4),
		"announcement": arpFrame(remoteMAC, addr4, addr4),
		"IPv6":         udpTo(addr6, remoteMAC, far6),
		"NS":           eth(broadcast, remoteMAC, etherIPv6, ipv6(far6, local6, nextICMPv6, ns(addr6))),
		"DAD":          dadFrame(remoteMAC, addr6),
	}
	for name, frame := range frames {
		verdict, _ := b.run(WhereGuardIngress, frame)
		equal(t, name+" before the fence", verdict, pass)
	}
	b.fence(addr4)
	b.fence(addr6)
	for name, frame := range frames {
		t.Run(name, func(t *testing.T) { b.t = t; b.expect(WhereGuardIngress, frame, drop, ResultDropFenced) })
	}
	b.t = t
	b.expect(WhereGuardIngress, udpTo(far4, remoteMAC, far4), pass)
	b.expect(WhereGuardIngress, tagged(100, udpTo(addr4, remoteMAC, far4)), pass)
	b.expect(WhereGuardIngress, tagged(0, tagged(0, tagged(0, udpTo(addr4, remoteMAC, far4)))), drop, ResultDropMalformed)
}

func TestGuardIngressTellsAZombieSiblingFromTheNewHolder(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.bind(other4, 2)
	b.bind(other6, 2)
	b.fence(other4)
	b.fence(other6)
	for name, frame := range map[string][]byte{
		"IPv4": udpTo(addr4, otherMAC, other4),
		"ARP":  arpFrame(otherMAC, other4, addr4),
		"IPv6": udpTo(addr6, otherMAC, other6),
		"NA":   naFrame(otherMAC, other6),
	} {
		t.Run("zombie's "+name, func(t *testing.T) { b.t = t; b.expect(WhereGuardIngress, frame, drop, ResultDropFenced) })
	}
	for name, frame := range map[string][]byte{
		"IPv4":         udpTo(addr4, remoteMAC, other4),
		"ARP":          arpFrame(remoteMAC, other4, addr4),
		"announcement": arpFrame(remoteMAC, other4, other4),
		"NA":           naFrame(remoteMAC, other6),
	} {
		t.Run("new holder's "+name, func(t *testing.T) { b.t = t; b.expect(WhereGuardIngress, frame, pass) })
	}
}

func TestGuardIngressHearsAHolderWithTheMACOfAZombieSibling(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.Leases.Install(key(other4), Lease{Token: heldToken, Network: network, Slot: 2, MAC: otherMAC, Flags: FlagSharedMAC}))
	b.expect(WhereGuardIngress, arpFrame(remoteMAC, other4, addr4), drop, ResultDropMAC)
	b.fence(other4)
	b.expect(WhereGuardIngress, udpTo(addr4, otherMAC, other4), pass)
	b.expect(WhereGuardIngress, arpFrame(otherMAC, other4, addr4), pass)
}

func TestGuardIngressDropsNeighboursThatPretendToBeASibling(t *testing.T) {
	b := newBench(t, setup{})
	b.bind(other4, 2)
	b.bind(other6, 2)
	b.expect(WhereGuardIngress, arpFrame(remoteMAC, other4, addr4), drop, ResultDropMAC)
	b.expect(WhereGuardIngress, naFrame(remoteMAC, other6), drop, ResultDropMAC)
	b.expect(WhereGuardIngress, arpFrame(otherMAC, other4, addr4), pass)
	b.expect(WhereGuardIngress, arpProbe(remoteMAC, other4), pass) // its holder must hear and answer it
	t.Run("but not the successor of a dead one, who claims nothing in mode Observe", func(t *testing.T) {
		b := newBench(t, setup{})
		b.bind(other4, 2)
		check.OK(t, b.Guards.Kill(2))
		b.expect(WhereGuardIngress, arpFrame(remoteMAC, other4, addr4), pass)
	})
	t.Run("but not IP: a router has its own MAC", func(t *testing.T) {
		b.t = t
		b.expect(WhereGuardIngress, udpTo(addr4, remoteMAC, other4), pass)
	})
}

func TestGuardIngressReportsAForeignMACForOurAddress(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.expect(WhereGuardIngress, arpFrame(podMAC, addr4, far4), pass)
	b.expect(WhereGuardIngress, arpFrame(remoteMAC, addr4, far4), pass, ResultHit)
	e := b.events.next()
	equal(t, "type", e.Type, EventHit)
	equal(t, "where", e.Where, WhereGuardIngress)
	equal(t, "key", e.Key, key(addr4))
	equal(t, "MAC", e.MAC.String(), remoteMAC.String())
	equal(t, "kind", e.Kind, KindARP)
	t.Run("a probe is the observer's to count", func(t *testing.T) {
		b.t = t
		b.expect(WhereGuardIngress, arpProbe(remoteMAC, addr4), pass)
		equal(t, "probes", b.state(addr4).Probes, 0)
	})
}

func TestGuardIngressDropsClaimsUnverified(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.expect(WhereGuardIngress, remoteClaim(t, addr4, 200), drop)
	equal(t, "fenced", b.fenced(addr4), false)
}

func TestGuardOfAVFVerifiesClaimsItself(t *testing.T) {
	b := newBench(t, setup{verify: true}, addr4)
	b.expect(WhereGuardIngress, remoteClaim(t, far4, 200), drop, ResultNotHeld)
	var ack []byte
	verdict, ack := b.run(WhereGuardIngress, remoteClaim(t, addr4, 200))
	equal(t, "verdict", verdict, redirect)
	equal(t, "fenced", b.fenced(addr4), true)
	checkAck(t, ack, addr4, 200, remoteMAC, podMAC, keyA)
	b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
	// The ack leaves through our own egress, also once the slot is dead.
	b.expect(WhereGuardEgress, ack, pass)
	check.OK(t, b.Guards.Kill(1))
	b.expect(WhereGuardEgress, ack, pass)
	ack[len(ack)-1] ^= 1
	b.expect(WhereGuardEgress, ack, drop, ResultFromPod)

	b.expect(WhereGuardIngress, arpProbe(remoteMAC, far4), drop, ResultDropDead)
}

// A broadcast comes to all VFs of the node. Only the VF of the holder may send from its MAC.
func TestGuardOfAVFAcksForItsOwnHolderOnly(t *testing.T) {
	b := newBench(t, setup{verify: true}, addr4)
	b.bind(other4, 2)
	b.expect(WhereGuardIngress, remoteClaim(t, other4, 200), drop, ResultFenced)
	equal(t, "fenced", b.fenced(other4), true)
	b.expect(WhereGuardIngress, remoteClaim(t, addr4, 200), redirect, ResultFenced, ResultAckSent)
}

// The card carries the node's own probes to a VF, and those of others also to the PF. Two probes are a conflict.
func TestGuardOfAVFLeavesProbesToTheObserver(t *testing.T) {
	b := newBench(t, setup{verify: true}, addr4)
	for _, from := range []net.HardwareAddr{parentMAC, remoteMAC} {
		b.expect(WhereGuardIngress, arpProbe(from, addr4), pass)
	}
	equal(t, "probes", b.state(addr4).Probes, 0)
}

// Some cards return what a VF has sent. The kernel of the pod would take it for a duplicate address.
func TestGuardOfAVFDropsItsOwnFramesThatComeBack(t *testing.T) {
	own := arpFrame(podMAC, addr4, other4)
	b := newBench(t, setup{verify: true}, addr4)
	b.expect(WhereGuardIngress, own, drop, ResultDropMAC)
	b = newBench(t, setup{}, addr4)
	b.expect(WhereGuardIngress, own, pass)
}
