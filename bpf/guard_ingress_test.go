// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"net"
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

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
	check.OK(t, b.InstallLease(key(other4), Lease{Token: heldToken, Network: network, Slot: 2, MAC: otherMAC, Flags: FlagSharedMAC}))
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
		check.OK(t, b.KillSlot(2))
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
	check.OK(t, b.KillSlot(1))
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
