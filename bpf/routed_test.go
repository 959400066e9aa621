// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// RFC 4861, 7.1: no host of the segment listens to it, and anybody far away can send it.
func TestNeighbourDiscoveryThatCameOverARouterIsNobodysWord(t *testing.T) {
	for name, frame := range map[string][]byte{
		"NA":  routed(naFrame(remoteMAC, far6)),
		"NS":  routed(eth(broadcast, remoteMAC, etherIPv6, ipv6(far6, local6, nextICMPv6, ns(addr6)))),
		"DAD": routed(dadFrame(remoteMAC, far6)),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, setup{})
			check.OK(t, b.InstallLease(key(far6), Lease{}))
			b.expect(WhereObserverIngress, frame, pass)
			s := b.state(far6)
			equal(t, "hits", s.Hits, 0)
			equal(t, "probes", s.Probes, 0)
			_, sighted, err := b.Sighting(key(far6))
			check.OK(t, err)
			equal(t, "sighted", sighted, false)
		})
	}
	t.Run("nor for an address of a pod that gets it", func(t *testing.T) {
		b := newBench(t, setup{})
		b.bind(addr6, 1)
		b.expect(WhereGuardIngress, routed(naFrame(remoteMAC, addr6)), pass)
	})
	t.Run("but a pod may not send it for others", func(t *testing.T) {
		b := newBench(t, setup{})
		b.bind(other6, 2)
		b.expect(WhereGuardEgress, routed(eth(broadcast, podMAC, etherIPv6, ipv6(local6, far6, nextICMPv6, na(other6, podMAC)))), drop, ResultDropSlot)
	})
}
