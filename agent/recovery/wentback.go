// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/revision"
)

// keepUp handles a lease that is older than its holder's token: the store went back. The
// holder keeps its token, and the lease records that no claim can be newer. Once the
// store has reached that revision again, the holder gets a new token.
func (r *resumption) keepUp(ctx context.Context) error {
	if !lease.IsBehind(r.l, r.address.Token) {
		return nil
	}
	live, err := revision.Live(ctx, r.Reader)
	if err != nil {
		return err
	}
	switch lease.StandingOf(r.l, r.address.Token, live) {
	case lease.Ahead:
		why := fmt.Sprintf("the store is at revision %d, and the holder's token is %d: no claim can fence it until the store has reached the token", live, r.address.Token)
		if _, err := r.Leases.Update(ctx, r.l, lease.WentBack(why)); err != nil {
			return err
		}
		r.warn(&r.e, string(v1alpha1.ReasonStoreWentBack), "%s: %s", r.address.Addr, why)
	case lease.CaughtUp:
		renewed, err := r.Leases.Update(ctx, r.l, lease.Renew)
		if err != nil {
			return err
		}
		return r.adopt(renewed, "the store has reached the token again")
	}
	return nil
}
