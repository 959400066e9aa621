// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"net"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// A proxy may answer first, and another one last; who answers in between is the conflict.
func TestWhoSpeaksBetweenOthersIsToldOf(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.InstallLease(key(far4), Lease{}))
	for _, by := range []string{otherMAC.String(), remoteMAC.String(), podMAC.String()} {
		b.run(WhereObserverIngress, arpFrame(mac(by), far4, addr4))
		equal(t, "told of", b.events.next().MAC.String(), by)
	}
}

func TestManyWhoSpeakByTurnsDoNotFloodTheBuffer(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.InstallLease(key(far4), Lease{}))
	const rounds = 500
	began := b.Now()
	moved := b.counted(func() {
		for range rounds {
			b.run(WhereObserverIngress, arpFrame(remoteMAC, far4, addr4))
			b.run(WhereObserverIngress, arpFrame(otherMAC, far4, addr4))
		}
	})
	const interval, each = 100e6, 9
	intervals := uint64((b.Now()-began)/interval) + 1
	told := 2*rounds - moved[Counter{WhereObserverIngress, ResultSuppressed}]
	equal(t, "hits", moved[Counter{WhereObserverIngress, ResultHit}], 2*rounds)
	if told > intervals*each {
		t.Errorf("%d events in %d intervals", told, intervals)
	}
}

// The interface of an ADD is down. Another node may have a holder of the address with the same MAC.
func TestWhileTheInterfaceIsDownItsMACIsForeignToo(t *testing.T) {
	b := newBench(t, setup{})
	down := Lease{Token: heldToken, Network: network, Slot: 1, MAC: podMAC, Flags: FlagDown}
	check.OK(t, b.InstallLease(key(addr4), down))
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
			check.OK(t, b.InstallLease(key(addr4), Lease{Token: heldToken, Network: network, Slot: 1, MAC: podMAC, Flags: tc.flags}))
			b.run(WhereObserverEgress, arpFrame(tc.by, addr4, far4))
			check.OK(t, b.RemoveLease(key(addr4)))
			_, ok, err := b.Sighting(key(addr4))
			check.OK(t, err)
			equal(t, "sighting", ok, tc.stays)
		})
	}
}

// Linux believes ARP of hardware type 6 (IEEE 802) as well (net/ipv4/arp.c arp_process).
func TestARPOfHardwareType6IsHeard(t *testing.T) {
	b := newBench(t, setup{})
	b.bind(addr4, 1)
	frame := arpFrame(remoteMAC, addr4, far4)
	frame[14+1] = 6
	b.expect(WhereObserverIngress, frame, pass, ResultSighting, ResultHit)
	b.bind(far4, 2)
	forged := arpFrame(podMAC, far4, addr4)
	forged[14+1] = 6
	b.expect(WhereGuardEgress, forged, drop, ResultDropSlot)
}
