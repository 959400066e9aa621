package lease

import (
	"context"
	"time"

	"github.com/fenceline/fenceline/apis/revision"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Standing is how the token of a holder compares with the store that holds its lease.
type Standing int

const (
	// InStep: the lease was written with the token, or later. The zero value.
	InStep Standing = iota
	// Ahead: the store went back behind the token, and the lease does not say so yet.
	Ahead
	// AheadAndTold: it says so already.
	AheadAndTold
	// CaughtUp: the store has come as far again. Written anew, the lease gives a
	// token of this store.
	CaughtUp
)

// StandingOf compares the token that a holder has in the kernel with its lease,
// and with how far the store has come.
func StandingOf(l *v1alpha1.IPLease, token, live uint64) Standing {
	switch told := l.Spec.Reason == v1alpha1.ReasonStoreWentBack; {
	case !IsBehind(l, token):
		return InStep
	case live >= token:
		return CaughtUp
	case told:
		return AheadAndTold
	}
	return Ahead
}

// IsBehind tells whether a lease is older than the token of its holder, or was so when it was looked at last.
func IsBehind(l *v1alpha1.IPLease, token uint64) bool {
	return l.Spec.Reason == v1alpha1.ReasonStoreWentBack || revision.Of(l) < token
}

// WentBack says on a Bound lease that its holder cannot be fenced.
func WentBack(message string) Transition {
	return fromBound(func(s *v1alpha1.IPLeaseSpec) { s.Reason, s.Message = v1alpha1.ReasonStoreWentBack, message })
}

// Renew binds a lease to its holder anew, for a newer token.
func Renew(now time.Time) Transition {
	return fromBound(func(s *v1alpha1.IPLeaseSpec) {
		enter(s, v1alpha1.StateBound, "", "", now)
	})
}

// WentBack says on a lease that its holder's token is ahead of the store.
func (s *Store) WentBack(ctx context.Context, l *v1alpha1.IPLease, message string) (*v1alpha1.IPLease, error) {
	return s.Update(ctx, l, WentBack(message))
}

// Renew writes the lease of a holder anew, once the store is ahead of its token.
func (s *Store) Renew(ctx context.Context, l *v1alpha1.IPLease) (*v1alpha1.IPLease, error) {
	return s.Update(ctx, l, Renew(s.o.Clock.Now()))
}
