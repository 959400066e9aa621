// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/apiserver"
)

// Standing is the result of comparing the token of a holder with the store that holds its lease.
type Standing int

const (
	// InStep: the write that gave the token, or a later one, wrote the lease. The zero value.
	InStep Standing = iota
	// Ahead: the store went back behind the token, and the lease does not report it yet.
	Ahead
	// AheadRecorded: the store went back, and the lease reports it.
	AheadRecorded
	// CaughtUp: the store has reached the token again, so a new write gives a token of this store.
	CaughtUp
)

// StandingOf compares a holder's token with its lease and with the store's revision, live.
func StandingOf(l *v1alpha1.IPLease, token, live uint64) Standing {
	switch reported := l.Spec.Reason == v1alpha1.ReasonStoreWentBack; {
	case !IsBehind(l, token):
		return InStep
	case live >= token:
		return CaughtUp
	case reported:
		return AheadRecorded
	}
	return Ahead
}

// IsBehind reports whether a lease is, or was at the last look, older than its holder's token.
func IsBehind(l *v1alpha1.IPLease, token uint64) bool {
	return l.Spec.Reason == v1alpha1.ReasonStoreWentBack || apiserver.RevisionOf(l) < token
}

// WentBack records on a Bound lease that its holder cannot be fenced: its token is ahead of the store.
func WentBack(message string) Transition {
	return from(v1alpha1.StateBound, func(s *v1alpha1.IPLeaseSpec, _ time.Time) {
		s.Reason, s.Message = v1alpha1.ReasonStoreWentBack, message
	})
}

// Renew binds a lease to its holder again, which gives a newer token.
func Renew(s v1alpha1.IPLeaseSpec, o Owner) (v1alpha1.IPLeaseSpec, error) {
	return from(v1alpha1.StateBound, func(s *v1alpha1.IPLeaseSpec, now time.Time) {
		enter(s, v1alpha1.StateBound, "", "", now)
		s.Holder.Token = 0 // this write gives it
	})(s, o)
}

// Renewal is the treatment of a fenced address whose lease is still the holder's own.
type Renewal int

const (
	// Outrank: another write of the lease gives a token that is newer than the claim. The zero value.
	Outrank Renewal = iota
	// Disprove: this store has never given the token of the claim, and gives no newer one now. The
	// kernel ignores the claim once it is proven that no host speaks by it.
	Disprove
	// GiveWay: the store gave the token and went back. A pod may have the address by it.
	GiveWay
)

// RenewalOf decides about a fence by a claim. live is the revision of the store now, known the newest
// that this node has read since its boot.
func RenewalOf(claimed, live, known uint64) Renewal {
	switch {
	case claimed <= live:
		return Outrank
	case claimed <= known:
		return GiveWay
	}
	return Disprove
}
