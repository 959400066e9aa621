// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/apiserver"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// renewFirst and renewMost bound the pause between two renewals: a write and a verification.
	renewFirst = 10 * time.Second
	renewMost  = time.Minute
	// renewalsEnd is the time after which an earlier renewal does not lengthen the pause any more.
	renewalsEnd = 10 * time.Minute
)

// errTooSoon: see renewFirst.
var errTooSoon = errors.New("the last try to renew the token was a moment ago; the next one comes later")

// renewals are the latest renewals by address. They bound the writes that claims of others cause.
type renewals map[dispute]renewal

type renewal struct {
	last     time.Time
	inARow   int
	notUntil time.Time
}

// wait reports whether the next renewal of an address has to wait. It forgets an old renewal.
func (r renewals) wait(d dispute, now time.Time) bool {
	latest, ok := r[d]
	if ok && now.Sub(latest.last) > renewalsEnd {
		delete(r, d)
	}
	return ok && now.Before(latest.notUntil)
}

// note counts a renewal, and returns the pause until the next one.
func (r renewals) note(d dispute, now time.Time) time.Duration {
	n := r[d].inARow + 1
	pause := loop.Pause(renewFirst, renewMost, n)
	r[d] = renewal{last: now, inARow: n, notUntil: now.Add(pause)}
	return pause
}

// renewalOf decides how to end the fence of an address whose lease is the holder's own. It also
// returns the token of the claim.
func (r *resumption) renewalOf(ctx context.Context) (lease.Renewal, uint64, error) {
	claimed, err := r.w.Guards.Leases.Claimed(&r.e, r.address)
	if err != nil {
		return 0, 0, err
	}
	// Read in this order: live is then less than known only if the store went back.
	known, err := r.w.Revision()
	if err != nil {
		return 0, 0, err
	}
	live, err := apiserver.Revision(ctx, r.w.Reader)
	if err != nil {
		return 0, 0, err
	}
	return lease.RenewalOf(claimed, live, known), claimed, nil
}

// renew ends the fence of an address whose lease is the holder's own. The pod is not deleted. gone
// reports that the entry is gone.
func (r *resumption) renew(ctx context.Context) (gone bool, err error) {
	how, claimed, err := r.renewalOf(ctx)
	if err != nil {
		return false, err
	}
	if how == lease.GiveWay { // the store went back since the decision
		return false, errUndecided
	}
	pod, err := r.w.podOf(ctx, &r.e)
	if err != nil {
		return false, err
	}
	if pod == nil {
		return true, r.w.releaseAfterNewer(ctx, r.e)
	}
	r.w.mu.Lock()
	pause := r.w.renewals.note(r.dispute(), r.w.Clock.Now())
	r.w.mu.Unlock()
	if err := r.renewToken(ctx, claimed, how == lease.Disprove); err != nil {
		r.w.warn(&r.e, "FenceNotEnded", "%s is this pod's, but a claim has fenced it, and the pod stays mute: %v; next try in %s",
			r.address.Addr, err, pause)
		return false, err
	}
	return false, nil
}

// keepUp handles a lease that is older than its holder's token: the store went back. The
// holder keeps its token, and the lease records that no claim can be newer. Once the
// store has reached that revision again, the holder gets a new token.
func (r *resumption) keepUp(ctx context.Context) error {
	if !lease.IsBehind(r.l, r.address.Token) {
		return nil
	}
	live, err := apiserver.Revision(ctx, r.w.Reader)
	if err != nil {
		return err
	}
	switch lease.StandingOf(r.l, r.address.Token, live) {
	case lease.Ahead:
		why := fmt.Sprintf("the store is at revision %d, and the holder's token is %d: no claim can fence it until the store has reached the token", live, r.address.Token)
		if _, err := r.w.Leases.Update(ctx, r.l, lease.WentBack(why)); err != nil {
			return err
		}
		r.w.warn(&r.e, string(v1alpha1.ReasonStoreWentBack), "%s: %s", r.address.Addr, why)
	case lease.CaughtUp:
		renewed, err := r.w.Leases.Update(ctx, r.l, lease.Renew)
		if err != nil {
			return err
		}
		return r.adopt(renewed, "the store has reached the token again")
	}
	return nil
}
