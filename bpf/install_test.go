// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/check"
)

// R9: nothing but a newer lease raises the token, and installing a lease never lowers the greatest claim.
func TestInstallingALeaseNeverLowersTheGreatestClaim(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.fence(addr4) // claim 200
	install := func(token uint64) error {
		return b.Leases.Install(key(addr4), Lease{Token: token, Network: network, Slot: 1, MAC: podMAC})
	}
	for _, tc := range []struct {
		token  uint64
		err    error
		fenced bool
	}{
		{100, nil, true}, {150, nil, true}, {149, ErrOlderToken, true}, {199, nil, true}, {200, nil, false}, {199, ErrOlderToken, false}, {201, nil, false},
	} {
		check.Is(t, install(tc.token), tc.err, "install token %d: got", tc.token)
		equal(t, "max", b.state(addr4).MaxToken, 200)
		equal(t, "fenced", b.fenced(addr4), tc.fenced)
		verdict, _ := b.run(WhereGuardEgress, udpFrom(addr4))
		equal(t, "dropped", verdict == drop, tc.fenced)
	}
	t.Run("nor does removing it and coming back with an older one", func(t *testing.T) {
		b.t = t
		check.OK(t, b.Leases.Remove(key(addr4)))
		check.OK(t, b.Leases.Remove(key(addr4))) // twice is fine
		check.OK(t, install(120))
		equal(t, "fenced", b.fenced(addr4), true)
		b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
	})
}

func TestAWatchNeverReplacesAHolder(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	check.Is(t, b.Leases.Install(key(addr4), Lease{Token: 500}), ErrHeld, "got")
	l, ok, err := b.Leases.Lease(key(addr4))
	check.OK(t, err)
	equal(t, "installed", ok, true)
	equal(t, "slot", l.Slot, 1)
}

func TestATargetStandsBehindInPlaceOfADeadSlotAlone(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.fence(addr4) // claim 200
	behind := func() error {
		return b.Leases.Install(key(addr4), Lease{Behind: 200, Network: network, Slot: 2, MAC: podMAC})
	}
	check.Is(t, behind(), ErrHeld, "slot 1 lives: got")
	check.OK(t, b.Guards.Kill(1))
	check.OK(t, behind())
	l, _, err := b.Leases.Lease(key(addr4))
	check.OK(t, err)
	equal(t, "slot", l.Slot, 2)
	equal(t, "fenced", b.fenced(addr4), true)
}

func TestStateGoesWithItsLeaseUnlessAClaimWasHeard(t *testing.T) {
	b := newBench(t, setup{}, addr4, other4)
	b.fence(other4)
	check.OK(t, b.Leases.Remove(key(addr4)))
	check.OK(t, b.Leases.Remove(key(other4)))
	for addr, want := range map[netip.Addr]bool{addr4: false, other4: true} {
		equal(t, "state of "+addr.String(), has(b.Leases.State(key(addr)))(t), want)
	}
}

func TestMemoryOfClaimsGivesWayToNewLeases(t *testing.T) {
	b := newBench(t, setup{})
	addr := netip.MustParseAddr("10.99.0.0")
	for range b.maps.States.MaxEntries() { // nobody leases these any more
		addr = addr.Next()
		check.OK(t, b.maps.States.Put(key(addr).layout(), observerState{Max: 1}))
	}
	b.bind(addr4, 1)
	b.fence(addr4)
	equal(t, "fenced", b.fenced(addr4), true)
}

func TestLeaseOfNoAddressIsRefused(t *testing.T) {
	b := newBench(t, setup{})
	for _, addr := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%eth0")} {
		check.That(t, b.Leases.Install(key(addr), Lease{}) != nil, "lease of %q was installed", addr)
	}
}

func TestTheGateIsShutWhileNothingIsFenced(t *testing.T) {
	b := newBench(t, setup{})
	open := func() bool {
		var raised, settled uint64
		check.OK(t, b.maps.Gate.Lookup(gateRaised, &raised))
		check.OK(t, b.maps.Gate.Lookup(gateSettled, &settled))
		return raised != settled
	}
	equal(t, "open at first", open(), false)
	b.bind(addr4, 1)
	b.bind(other4, 2)
	equal(t, "open with leases", open(), false)
	b.fence(addr4)
	b.fence(other4)
	equal(t, "open with two fences", open(), true)
	check.OK(t, b.Leases.Remove(key(other4)))
	equal(t, "open with one fence", open(), true)
	check.OK(t, b.Leases.Install(key(addr4), Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC}))
	equal(t, "open with none", open(), false)
	check.OK(t, b.Guards.Kill(1))
	equal(t, "open with a dead slot", open(), true)
	check.OK(t, b.Leases.Remove(key(addr4)))
	equal(t, "open when its lease is gone", open(), false)
}

func TestAWatchEndsWithoutTheLeaseThatReplacedIt(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.Leases.Install(key(addr4), Lease{}))
	check.OK(t, b.Leases.RemoveWatch(key(addr4)))
	equal(t, "watched", has(b.Leases.Lease(key(addr4)))(t), false)
	check.OK(t, b.Leases.Install(key(addr4), Lease{}))
	b.bind(addr4, 1)
	check.OK(t, b.Leases.RemoveWatch(key(addr4)))
	equal(t, "leased", has(b.Leases.Lease(key(addr4)))(t), true)
}

func TestAFenceThatComesWhileTheGateIsBeingShutKeepsItOpen(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	check.OK(t, b.Leases.gate.open())
	check.OK(t, b.Leases.gate.settleUnless(func() (bool, error) {
		b.fence(addr4) // behind the look that found nothing
		return false, nil
	}))
	b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
}

// 4 writers of leases against a wave of claims: none is lost. A flag inside the lease loses about half.
func TestRenewingALeaseLosesNoFence(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					l := Lease{Token: 100, Network: network, Slot: 1, MAC: podMAC}
					if err := b.Leases.Install(key(addr4), l); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for token := uint64(1000); token < 4000; token++ {
		b.run(WhereObserverIngress, remoteClaim(t, addr4, token))
		got := b.state(addr4).MaxToken
		check.Must(t, got == token, "max %d after claim %d", got, token)
	}
	close(stop)
	wg.Wait()
}

func TestConcurrentClaimsLeaveTheGreatest(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	const rounds, workers = 2000, 2
	// In each round all begin at the same time, so that they meet between looking and writing.
	var begin, end [rounds]atomic.Int32
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				f := claim.Frame{Network: network, Addr: addr4, Token: uint64(101 + i*workers + w)}
				frame := signed(t, f, keyA)
				for begin[i].Add(1); begin[i].Load() < workers; {
				}
				if _, _, err := b.observer["ingress"].Test(frame); err != nil {
					t.Error(err)
				}
				if end[i].Add(1) == workers {
					s, _, err := b.Leases.State(key(addr4))
					greatest := uint64(100 + (i+1)*workers)
					check.That(t, err == nil && s.MaxToken == greatest, "round %d: max %d, %v; want %d", i, s.MaxToken, err, greatest)
				}
				for end[i].Load() < workers {
				}
			}
		})
	}
	wg.Wait()
}

func TestKeysRotateWithoutAGap(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	token := uint64(200)
	fences := func(k ClaimKey) bool {
		token++
		b.run(WhereObserverIngress, signed(t, claim.Frame{Network: network, Addr: addr4, Token: token}, k))
		return b.state(addr4).MaxToken == token
	}
	check.OK(t, b.SetKeys(&keyA, nil))
	equal(t, "current", fences(keyA), true)
	equal(t, "not yet known", fences(keyB), false)
	check.OK(t, b.SetKeys(&keyB, &keyA))
	equal(t, "new current", fences(keyB), true)
	equal(t, "previous", fences(keyA), true)
	check.OK(t, b.SetKeys(&keyB, nil))
	equal(t, "retired", fences(keyA), false)
	check.OK(t, b.SetKeys(nil, nil))
	equal(t, "no key", fences(keyB), false)
	equal(t, "the zero key is no key", fences(ClaimKey{}), false)
}

// A copy of the cluster, restored with a bumped revision, has the same networks and the same key.
func TestATokenThatTheStoreCannotHaveGivenFencesNothing(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	check.OK(t, b.Ceiling.Know(1000))
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 1000+Margin+1), drop, ResultBeyond)
	b.expect(WhereObserverEgress, remoteClaim(t, addr4, math.MaxUint64), pass, ResultBeyond)
	equal(t, "fenced", b.fenced(addr4), false)
	equal(t, "max", b.state(addr4).MaxToken, 0)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 1000+Margin), redirect, ResultFenced, ResultAckSent)
	equal(t, "fenced by the greatest token that the store can have given", b.fenced(addr4), true)
}

func TestTheCeilingFollowsTheNewestRevision(t *testing.T) {
	dir := bpffs(t)
	k := openKernel(t, dir)
	for _, step := range []struct{ told, known uint64 }{{0, 0}, {7, 7}, {5, 7}, {9, 9}} {
		check.OK(t, k.Ceiling.Know(step.told))
		known := check.Value(k.Ceiling.Revision())(t)
		equal(t, "newest revision", known, step.known)
	}
	k.Close()
	k = openKernel(t, dir) // of an agent that starts again
	check.OK(t, k.Ceiling.Know(8))
	equal(t, "newest revision after a restart of the agent", check.Value(k.Ceiling.Revision())(t), 9)
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
	check.OK(t, b.Leases.Install(key(addr4), renewed))
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
		check.OK(t, b.Leases.Install(key(addr4), renewed))
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
	check.OK(t, b.Leases.Install(key(addr4), renewed))
	equal(t, "fenced while it is verified", b.fenced(addr4), true)
	b.run(WhereObserverIngress, remoteClaim(t, addr4, 300))
	renewed.Flags = 0
	check.OK(t, b.Leases.Install(key(addr4), renewed))
	equal(t, "fenced by the lawful claim", b.fenced(addr4), true)
	b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
}

// Between the decision and the renewal another claim may come.
func TestADisprovedClaimLeavesAGreaterOne(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.run(WhereObserverIngress, remoteClaim(t, addr4, 9001))
	check.OK(t, b.Leases.Install(key(addr4), Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC, Disproved: 9000}))
	equal(t, "fenced", b.fenced(addr4), true)
	b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
}

func TestADisprovedClaimEndsWithTheLease(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.run(WhereObserverIngress, remoteClaim(t, addr4, 9000))
	check.OK(t, b.Leases.Install(key(addr4), Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC, Disproved: 9000}))
	check.OK(t, b.Leases.Remove(key(addr4)))
	check.OK(t, b.Leases.Install(key(addr4), Lease{Token: 400, Network: network, Slot: 1, MAC: podMAC}))
	equal(t, "the next lease is fenced", b.fenced(addr4), false)
}

// An unproven address sends nothing, and its other speakers are heard.
func TestAnUnprovenAddressIsFencedAndHearsOthers(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.fence(addr4)
	b.expect(WhereObserverIngress, arpFrame(remoteMAC, addr4, far4), pass)
	unproven := Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC, Flags: FlagUnproven}
	check.OK(t, b.Leases.Install(key(addr4), unproven))
	equal(t, "fenced", b.fenced(addr4), true)
	b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
	b.expect(WhereObserverIngress, arpFrame(remoteMAC, addr4, far4), pass, ResultHit)
	equal(t, "hits", b.state(addr4).Hits, 1)

	unproven.Flags = 0
	check.OK(t, b.Leases.Install(key(addr4), unproven))
	equal(t, "fenced after the proof", b.fenced(addr4), false)
	b.expect(WhereGuardEgress, udpFrom(addr4), pass)
}
