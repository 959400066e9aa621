package holder

import (
	"context"
	"fmt"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/revision"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// keepUp sees to a lease that is older than its holder's token: the store went
// back. The holder keeps its token, and the lease says that no claim can be
// newer, until the store has come as far again and gives it another one.
func (h *Holders) keepUp(ctx context.Context, e *journal.Entry, address journal.Address, l *v1alpha1.IPLease) error {
	if !lease.IsBehind(l, address.Token) {
		return nil
	}
	live, err := revision.Live(ctx, h.Reader)
	if err != nil {
		return err
	}
	switch lease.StandingOf(l, address.Token, live) {
	case lease.Ahead:
		why := fmt.Sprintf("the store is at revision %d, and the holder's token is %d: no claim can fence it until the store has come as far", live, address.Token)
		if _, err := h.Leases.WentBack(ctx, l, why); err != nil {
			return err
		}
		h.warn(e, string(v1alpha1.ReasonStoreWentBack), "%s: %s", address.Addr, why)
	case lease.CaughtUp:
		renewed, err := h.Leases.Renew(ctx, l)
		if err != nil {
			return err
		}
		return h.adopt(e, address.LeaseName, renewed, "the store has come as far as the token again")
	}
	return nil
}
