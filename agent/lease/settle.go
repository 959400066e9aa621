// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// Finding is the meaning of a verdict for the lease.
type Finding int

const (
	// FindingUnknown: there was no answer, but the address is not proven safe. The zero value.
	FindingUnknown Finding = iota
	// FindingSafe: the previous holder is fenced, gone or proven silent.
	FindingSafe
	// FindingAnswered: another host uses the address.
	FindingAnswered
)

// Settlement is the step to take for a Quarantined lease.
type Settlement int

const (
	// Keep it Quarantined, with the spec as changed.
	Keep Settlement = iota
	// Free the address: delete the lease.
	Free
	// Hold it Retained for its pod, with the spec as changed.
	Hold
)

// Settle decides about a Quarantined lease by the finding of its verification.
func Settle(s v1alpha1.IPLeaseSpec, f Finding, e Evidence, now time.Time) (Settlement, v1alpha1.IPLeaseSpec, error) {
	if s.State != v1alpha1.StateQuarantined {
		return Keep, s, fmt.Errorf("settle: %w: %s", ErrState, describe(&s))
	}
	switch f {
	case FindingSafe:
		hold := Transition(Retain)
		switch {
		case IsStatic(&s):
		case mayReturn(&s):
			hold = KeepForPod
		default:
			return Free, s, nil
		}
		next, err := hold(s, Owner{Now: now})
		return Hold, next, err
	case FindingAnswered:
		// A hold stays one: its pod, which lives, may be the one that answers.
		if s.Reason != v1alpha1.ReasonConflict && s.Reason != v1alpha1.ReasonMovingIn {
			enter(&s, v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, "", now)
		}
		s.Message = conflictMessage(e)
		s.Conflict = note(s.Conflict, e, now)
	default:
		s.Message = e.Message
	}
	return Keep, s, nil
}

// IsStatic reports whether an address is kept for its pod's name when the pod ends.
func IsStatic(s *v1alpha1.IPLeaseSpec) bool {
	switch {
	case s.Holder == nil:
		return false
	case s.Retention != nil:
		return s.Retention.Policy != v1alpha1.RetainNone
	}
	return owner.KeepsName(s.Holder)
}

// mayReturn reports whether the pod of a Quarantined lease may get a next sandbox: its node has
// booted, its take-over was not confirmed, or another IPAM gave the address. The controller ends the lease of a pod
// that is gone.
func mayReturn(s *v1alpha1.IPLeaseSpec) bool {
	return s.Holder != nil && s.Holder.PodUID != "" &&
		(s.Reason == v1alpha1.ReasonNodeRestarted || s.Reason == v1alpha1.ReasonUnverified || s.Reason == v1alpha1.ReasonMovingIn)
}
