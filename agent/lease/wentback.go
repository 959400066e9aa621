// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/revision"
)

// Standing is the result of comparing the token of a holder with the store that holds its lease.
type Standing int

const (
	// InStep: the write that gave the token, or a later one, wrote the lease. The zero value.
	InStep Standing = iota
	// Ahead: the store went back behind the token, and the lease does not report it yet.
	Ahead
	// AheadAndTold: the store went back, and the lease reports it.
	AheadAndTold
	// CaughtUp: the store has reached the token again. A new write of the lease
	// gives a token of this store.
	CaughtUp
)

// StandingOf compares the token that a holder has in the kernel with its lease
// and with the store's revision, live.
func StandingOf(l *v1alpha1.IPLease, token, live uint64) Standing {
	switch reported := l.Spec.Reason == v1alpha1.ReasonStoreWentBack; {
	case !IsBehind(l, token):
		return InStep
	case live >= token:
		return CaughtUp
	case reported:
		return AheadAndTold
	}
	return Ahead
}

// IsBehind reports whether a lease is older than the token of its holder, or was older at the last
// look.
func IsBehind(l *v1alpha1.IPLease, token uint64) bool {
	return l.Spec.Reason == v1alpha1.ReasonStoreWentBack || revision.Of(l) < token
}

// WentBack records on a Bound lease that its holder cannot be fenced.
func WentBack(message string) Transition {
	return fromBound(func(s *v1alpha1.IPLeaseSpec) { s.Reason, s.Message = v1alpha1.ReasonStoreWentBack, message })
}

// Renew binds a lease to its holder again, which gives a newer token.
func Renew(now time.Time) Transition {
	return fromBound(func(s *v1alpha1.IPLeaseSpec) {
		enter(s, v1alpha1.StateBound, "", "", now)
		s.Holder.Token = 0 // this write gives it
	})
}

// WentBack records on a lease that its holder's token is ahead of the store.
func (s *Store) WentBack(ctx context.Context, l *v1alpha1.IPLease, message string) (*v1alpha1.IPLease, error) {
	return s.Update(ctx, l, WentBack(message))
}

// Renew writes the lease of a holder again, once the store is ahead of its token.
func (s *Store) Renew(ctx context.Context, l *v1alpha1.IPLease) (*v1alpha1.IPLease, error) {
	return s.Update(ctx, l, Renew(s.o.Clock.Now()))
}
