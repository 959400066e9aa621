// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"math"
	"testing"

	"github.com/fenceline/fenceline/bpf/obey"
	"github.com/fenceline/fenceline/test/check"
)

// A copy of the cluster, restored with a bumped revision, has the same networks and the same key.
func TestATokenThatTheStoreCannotHaveGivenFencesNothing(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	check.OK(t, b.KnowRevision(1000))
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 1000+obey.Margin+1), drop, ResultBeyond)
	b.expect(WhereObserverEgress, remoteClaim(t, addr4, math.MaxUint64), pass, ResultBeyond)
	equal(t, "fenced", b.fenced(addr4), false)
	equal(t, "max", b.state(addr4).MaxToken, 0)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 1000+obey.Margin), redirect, ResultFenced, ResultAckSent)
	equal(t, "fenced by the greatest token that the store can have given", b.fenced(addr4), true)
}

func TestTheCeilingFollowsTheNewestRevision(t *testing.T) {
	dir := bpffs(t)
	k := openKernel(t, dir)
	for _, step := range []struct{ told, known uint64 }{{0, 0}, {7, 7}, {5, 7}, {9, 9}} {
		check.OK(t, k.KnowRevision(step.told))
		known := check.Value(k.Revision())(t)
		equal(t, "newest revision", known, step.known)
	}
	k.Close()
	k = openKernel(t, dir) // of an agent that starts again
	check.OK(t, k.KnowRevision(8))
	equal(t, "newest revision after a restart of the agent", check.Value(k.Revision())(t), 9)
}

// A renewal disproves the token of a claim that this store has never given. The kernel must then obey
// the lesser tokens that the store gives.
func TestADisprovedClaimIsNone(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	const poison = 9000
	b.run(WhereObserverIngress, remoteClaim(t, addr4, poison))
	equal(t, "fenced", b.fenced(addr4), true)
	b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)

	renewed := Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC, Disproved: poison}
	check.OK(t, b.InstallLease(key(addr4), renewed))
	equal(t, "fenced after the renewal", b.fenced(addr4), false)
	b.expect(WhereGuardEgress, udpFrom(addr4), pass)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, poison), drop, ResultDisproved)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 301), drop, ResultFenced) // asks another holder for the ack
	equal(t, "max", b.state(addr4).MaxToken, 301)
	equal(t, "fenced by a token of the store", b.fenced(addr4), true)
	b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, poison), drop, ResultDisproved)
	equal(t, "max after a replay", b.state(addr4).MaxToken, 301)
}

// A copy of the cluster, or a recording of its claims, has several tokens.
func TestADisprovedTokenStaysDisprovedAfterTheNextOnes(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	renewed := Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC}
	for i := range uint64(1 + len(renewed.DisprovedBefore)) {
		poison := 9000 + i*7919%13 // neither in rising nor in falling order
		b.run(WhereObserverIngress, remoteClaim(t, addr4, poison))
		equal(t, "fenced by a new token", b.fenced(addr4), true)
		copy(renewed.DisprovedBefore[1:], renewed.DisprovedBefore[:])
		renewed.DisprovedBefore[0], renewed.Disproved = renewed.Disproved, poison
		check.OK(t, b.InstallLease(key(addr4), renewed))
		equal(t, "fenced after the renewal", b.fenced(addr4), false)
	}
	for i := range uint64(1 + len(renewed.DisprovedBefore)) {
		b.expect(WhereObserverIngress, remoteClaim(t, addr4, 9000+i*7919%13), drop, ResultDisproved)
	}
	equal(t, "fenced by replays in turn", b.fenced(addr4), false)
	b.run(WhereObserverIngress, remoteClaim(t, addr4, 301))
	equal(t, "fenced by a token of the store", b.fenced(addr4), true)
}

// While a renewal is verified, a lawful claim comes. It must fence also after the proof.
func TestAClaimDuringTheProofOutlivesTheDisprovedOne(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	const poison = 9000
	b.run(WhereObserverIngress, remoteClaim(t, addr4, poison))
	renewed := Lease{Token: 200, Network: network, Slot: 1, MAC: podMAC, Disproved: poison, Flags: FlagUnproven}
	check.OK(t, b.InstallLease(key(addr4), renewed))
	equal(t, "fenced while it is verified", b.fenced(addr4), true)
	b.run(WhereObserverIngress, remoteClaim(t, addr4, 300))
	renewed.Flags = 0
	check.OK(t, b.InstallLease(key(addr4), renewed))
	equal(t, "fenced by the lawful claim", b.fenced(addr4), true)
	b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
}

// Between the decision and the renewal another claim may come.
func TestADisprovedClaimLeavesAGreaterOne(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.run(WhereObserverIngress, remoteClaim(t, addr4, 9001))
	check.OK(t, b.InstallLease(key(addr4), Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC, Disproved: 9000}))
	equal(t, "fenced", b.fenced(addr4), true)
	b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
}

func TestADisprovedClaimEndsWithTheLease(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.run(WhereObserverIngress, remoteClaim(t, addr4, 9000))
	check.OK(t, b.InstallLease(key(addr4), Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC, Disproved: 9000}))
	check.OK(t, b.RemoveLease(key(addr4)))
	check.OK(t, b.InstallLease(key(addr4), Lease{Token: 400, Network: network, Slot: 1, MAC: podMAC}))
	equal(t, "the next lease is fenced", b.fenced(addr4), false)
}

// An unproven address sends nothing, and its other speakers are heard.
func TestAnUnprovenAddressIsFencedAndHearsOthers(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.fence(addr4)
	b.expect(WhereObserverIngress, arpFrame(remoteMAC, addr4, far4), pass)
	unproven := Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC, Flags: FlagUnproven}
	check.OK(t, b.InstallLease(key(addr4), unproven))
	equal(t, "fenced", b.fenced(addr4), true)
	b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
	b.expect(WhereObserverIngress, arpFrame(remoteMAC, addr4, far4), pass, ResultHit)
	equal(t, "hits", b.state(addr4).Hits, 1)

	unproven.Flags = 0
	check.OK(t, b.InstallLease(key(addr4), unproven))
	equal(t, "fenced after the proof", b.fenced(addr4), false)
	b.expect(WhereGuardEgress, udpFrom(addr4), pass)
}
