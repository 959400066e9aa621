// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import "testing"

// A proxy may answer first, and another one last; who answers in between is the conflict.
func TestWhoSpeaksBetweenOthersIsToldOf(t *testing.T) {
	b := newBench(t, setup{})
	must(t, b.InstallLease(key(far4), Lease{}))
	for _, by := range []string{otherMAC.String(), remoteMAC.String(), podMAC.String()} {
		b.run(WhereObserverIngress, arpFrame(mac(by), far4, addr4))
		equal(t, "told of", b.events.next().MAC.String(), by)
	}
}

func TestManyWhoSpeakByTurnsDoNotFloodTheBuffer(t *testing.T) {
	b := newBench(t, setup{})
	must(t, b.InstallLease(key(far4), Lease{}))
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
