// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
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
		return b.InstallLease(key(addr4), Lease{Token: token, Network: network, Slot: 1, MAC: podMAC})
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
		check.OK(t, b.RemoveLease(key(addr4)))
		check.OK(t, b.RemoveLease(key(addr4))) // twice is fine
		check.OK(t, install(120))
		equal(t, "fenced", b.fenced(addr4), true)
		b.expect(WhereGuardEgress, udpFrom(addr4), drop, ResultDropFenced)
	})
}

func TestAWatchNeverReplacesAHolder(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	check.Is(t, b.InstallLease(key(addr4), Lease{Token: 500}), ErrHeld, "got")
	l, ok, err := b.Lease(key(addr4))
	check.OK(t, err)
	equal(t, "installed", ok, true)
	equal(t, "slot", l.Slot, 1)
}

func TestStateGoesWithItsLeaseUnlessAClaimWasHeard(t *testing.T) {
	b := newBench(t, setup{}, addr4, other4)
	b.fence(other4)
	check.OK(t, b.RemoveLease(key(addr4)))
	check.OK(t, b.RemoveLease(key(other4)))
	for addr, want := range map[netip.Addr]bool{addr4: false, other4: true} {
		_, ok, err := b.State(key(addr))
		check.OK(t, err)
		equal(t, "state of "+addr.String(), ok, want)
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
		check.That(t, b.InstallLease(key(addr), Lease{}) != nil, "lease of %q was installed", addr)
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
	check.OK(t, b.RemoveLease(key(other4)))
	equal(t, "open with one fence", open(), true)
	check.OK(t, b.InstallLease(key(addr4), Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC}))
	equal(t, "open with none", open(), false)
	check.OK(t, b.KillSlot(1))
	equal(t, "open with a dead slot", open(), true)
	check.OK(t, b.RemoveLease(key(addr4)))
	equal(t, "open when its lease is gone", open(), false)
}

func TestAWatchEndsWithoutTheLeaseThatReplacedIt(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.InstallLease(key(addr4), Lease{}))
	check.OK(t, b.RemoveWatch(key(addr4)))
	_, watched, err := b.Lease(key(addr4))
	check.OK(t, err)
	equal(t, "watched", watched, false)
	check.OK(t, b.InstallLease(key(addr4), Lease{}))
	b.bind(addr4, 1)
	check.OK(t, b.RemoveWatch(key(addr4)))
	_, leased, err := b.Lease(key(addr4))
	check.OK(t, err)
	equal(t, "leased", leased, true)
}

func TestAFenceThatComesWhileTheGateIsBeingShutKeepsItOpen(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	check.OK(t, b.openGate())
	check.OK(t, b.settleUnless(func() (bool, error) {
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
					if err := b.InstallLease(key(addr4), l); err != nil {
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
					s, _, err := b.State(key(addr4))
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
