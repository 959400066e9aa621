package lease

import (
	"fmt"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Finding is what a verification means for the record.
type Finding int

const (
	// FindingUnknown: not safe, and nobody answered. The zero value.
	FindingUnknown Finding = iota
	// FindingSafe: the previous holder is fenced, gone or proven silent.
	FindingSafe
	// FindingAnswered: somebody speaks for the address.
	FindingAnswered
)

// Settlement is what becomes of a Quarantined lease.
type Settlement int

const (
	// Keep it Quarantined, with the spec as changed.
	Keep Settlement = iota
	// Free the address: delete the lease.
	Free
	// Hold it Retained for its pod's name, with the spec as changed.
	Hold
)

// Settle decides what a verification of a Quarantined lease leads to.
func Settle(s v1alpha1.IPLeaseSpec, f Finding, e Evidence, now time.Time) (Settlement, v1alpha1.IPLeaseSpec, error) {
	if s.State != v1alpha1.StateQuarantined {
		return Keep, s, fmt.Errorf("settle: %w: %s", ErrState, describe(&s))
	}
	switch f {
	case FindingSafe:
		if !IsStatic(&s) {
			return Free, s, nil
		}
		next, err := Retain(now)(s)
		return Hold, next, err
	case FindingAnswered:
		if s.Reason != v1alpha1.ReasonConflict {
			enter(&s, v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, "", now)
		}
		s.Message = conflictMessage(e)
		s.Conflict = note(s.Conflict, e, now)
	default:
		s.Message = e.Message
	}
	return Keep, s, nil
}

// IsStatic tells whether an address is kept for its pod's name when the pod goes.
func IsStatic(s *v1alpha1.IPLeaseSpec) bool {
	return s.Holder != nil && (s.Retention != nil || s.Holder.OwnerKind == "StatefulSet")
}
