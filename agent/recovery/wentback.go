// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/revision"
)

// keepUp handles a lease that is older than its holder's token: the store went back. The
// holder keeps its token, and the lease records that no claim can be newer. Once the
// store has reached that revision again, the holder gets a new token.
func (w *Worker) keepUp(ctx context.Context, e *journal.Entry, address journal.Address, l *v1alpha1.IPLease) error {
	if !lease.IsBehind(l, address.Token) {
		return nil
	}
	live, err := revision.Live(ctx, w.Reader)
	if err != nil {
		return err
	}
	switch lease.StandingOf(l, address.Token, live) {
	case lease.Ahead:
		why := fmt.Sprintf("the store is at revision %d, and the holder's token is %d: no claim can fence it until the store has reached the token", live, address.Token)
		if _, err := w.Leases.Update(ctx, l, lease.WentBack(why)); err != nil {
			return err
		}
		w.warn(e, string(v1alpha1.ReasonStoreWentBack), "%s: %s", address.Addr, why)
	case lease.CaughtUp:
		renewed, err := w.Leases.Update(ctx, l, lease.Renew)
		if err != nil {
			return err
		}
		return w.adopt(e, address.LeaseName, renewed, "the store has reached the token again")
	}
	return nil
}
