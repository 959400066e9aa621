// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

var ownClaim = Claim{Addr: addr4, Network: 42, Token: 1000, PreviousToken: 900, PreviousMAC: holderMAC}

func TestClaimGoesOutThreeTimesToAllAndToThePreviousHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg := newAir(t)
		check.OK(t, seg.Claim(t.Context(), ownClaim))
		frames := a.list(isClaim)
		equal(t, "claims", len(frames), 6)
		for i, f := range frames {
			equal(t, "frame", *f.claim, claim.Frame{Flags: claim.Asks(900), Network: 42, Addr: addr4, Token: 1000})
			equal(t, "marked for reflection", f.marked, false)
			equal(t, "time", f.after, time.Duration(i/2)*claimGap)
			equal(t, "by broadcast", broadcast(f.dst), i%2 == 0)
			if i%2 == 1 {
				equal(t, "unicast to", f.dst.String(), holderMAC.String())
			}
		}
	})
}

func TestClaimGoesOutUnderBothKeysDuringARotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg := newAir(t)
		old := claim.Key{2: 2}
		a.keys = []claim.Key{testKey, old}
		seg.set.SetKeys(a.keys...)
		check.OK(t, seg.Claim(t.Context(), Claim{Addr: addr4, Network: 42, Token: 1000}))
		equal(t, "claims", len(a.list(isClaim)), 6)
		equal(t, "counted", seg.set.claimsSent.Load(), 6)
	})
}

func TestClaimWithoutKeyIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, seg := newAir(t)
		seg.set.SetKeys()
		check.Is(t, seg.Claim(t.Context(), ownClaim), ErrNoKey, "got")
	})
}

func TestOnlyEnforceClaims(t *testing.T) {
	for mode, want := range map[v1alpha1.ConflictMode]int{"": 6, v1alpha1.ModeEnforce: 6, v1alpha1.ModeObserve: 0, v1alpha1.ModeOff: 0} {
		bubble(t, string(mode), func(t *testing.T) {
			a, seg := newAir(t)
			c := ownClaim
			c.Mode = mode
			check.OK(t, seg.ClaimAndConfirm(t.Context(), c))
			equal(t, "claims", len(a.list(isClaim)), want)
		})
	}
}

func TestR10ClaimWaitsForANewerOneBeforeItIsConfirmed(t *testing.T) {
	for _, tc := range []struct {
		name    string
		counter uint64        // token of the other holder's claim
		after   time.Duration // of our last one
		since   time.Duration // from the first claim of a verification to ours
		want    error
		took    time.Duration
	}{
		{"a newer claim within 20 ms wins", 1001, 19 * time.Millisecond, 0, ErrFenced, 30 * time.Millisecond},
		{"an older claim does not", 999, 19 * time.Millisecond, 0, nil, 30 * time.Millisecond},
		{"the time since the claim of a verification counts", 1001, 14 * time.Millisecond, 5 * time.Millisecond, ErrFenced, 15 * time.Millisecond},
		{"nothing is waited for if that is long ago", 0, time.Hour, time.Second, nil, 0},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			a, seg := newAir(t)
			check.OK(t, a.kernel.Install(key(addr4), bpf.Lease{Token: 1000, Slot: 3, MAC: holderMAC}))
			n, last := 0, 6
			if tc.since != 0 {
				last = 2 // one, by broadcast and by unicast
			}
			a.onClaim = func(_ claim.Frame, dst net.HardwareAddr) {
				if n++; n == last {
					time.AfterFunc(tc.after, func() { a.kernel.claim(key(addr4), tc.counter, otherMAC) })
				}
			}
			start, c := time.Now(), ownClaim
			if tc.since != 0 {
				c.Since = start.Add(-tc.since)
			}
			err := seg.ClaimAndConfirm(t.Context(), c)
			check.That(t, errors.Is(err, tc.want) && (err == nil) == (tc.want == nil), "err = %v, want %v", err, tc.want)
			equal(t, "duration", time.Since(start), tc.took)
		})
	}
}
