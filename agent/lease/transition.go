// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// Transition returns the next spec of a lease, for the owner that writes it. It is called again if
// the write loses a race. ErrState or ErrIdentity: the lease does not allow the transition.
type Transition func(v1alpha1.IPLeaseSpec, Owner) (v1alpha1.IPLeaseSpec, error)

// Owner is the node and session that a lease belongs to, and the time of the write.
type Owner struct {
	Node, Session string
	Now           time.Time
}

// Evidence is the result of a probe or of a sighting.
type Evidence struct {
	// MAC of the other speaker, empty if there is none.
	MAC string
	// Source is probe, observer or guard.
	Source string
	// Message explains the evidence to people, such as why a verdict is Unknown.
	Message string
}

// Bind returns the first spec of a Bound lease.
func Bind(r Request, o Owner) v1alpha1.IPLeaseSpec {
	s, holder := Warm(r, o), r.Holder
	s.State, s.Holder, s.Retention = v1alpha1.StateBound, &holder, r.Retention.DeepCopy()
	return s
}

// bindAgain returns the spec that binds the address of another spec.
func bindAgain(old v1alpha1.IPLeaseSpec, r Request, o Owner) v1alpha1.IPLeaseSpec {
	next := Bind(r, o)
	next.Address, next.Pool = old.Address, old.Pool
	return next
}

// TakeOver binds a lease that is kept for the request's pod: Retained,
// Quarantined, or Bound on this node to an older sandbox of it.
//
// If the last holder must be proven fenced, gone or silent before the address is used,
// spec.previous names it until Confirm.
func TakeOver(r Request) Transition {
	return func(old v1alpha1.IPLeaseSpec, o Owner) (v1alpha1.IPLeaseSpec, error) {
		if err := mayTakeOver(old, r.Holder, o); err != nil {
			return old, err
		}
		next := bindAgain(old, r, o)
		next.Conflict = old.Conflict
		if NeedsVerification(&old, o.Session) {
			next.Previous = lastHolder(old)
		}
		return next, nil
	}
}

// mayTakeOver compares by identity, since static addresses belong to names and virtual machines. All
// other addresses, and Bound ones, change hands only between sandboxes of one pod, by its UID.
func mayTakeOver(old v1alpha1.IPLeaseSpec, h v1alpha1.Holder, o Owner) error {
	if old.Holder == nil || !owner.Same(old.Holder, &h) && !isPod(old.Holder, &h) ||
		(old.Holder.Interface != "" && old.Holder.Interface != h.Interface) {
		return fmt.Errorf("%w: %s", ErrIdentity, describe(&old))
	}
	switch old.State {
	case v1alpha1.StateRetained, v1alpha1.StateQuarantined:
		if old.Holder.PodUID != h.PodUID && !(owner.KeepsName(&h) && owner.KeepsName(old.Holder)) {
			return fmt.Errorf("%w: %s", ErrIdentity, describe(&old))
		}
		return nil
	case v1alpha1.StateBound:
		if old.NodeName == o.Node && old.Holder.PodUID == h.PodUID {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", ErrState, describe(&old))
}

// isPod reports whether two holders are one pod. Leases of an earlier version record no ownerGroup.
func isPod(a, b *v1alpha1.Holder) bool {
	return a.Namespace == b.Namespace && a.Pod == b.Pod && a.PodUID == b.PodUID
}

// TakeBack binds a lease that another node quarantined because the request's own pod answered the
// probe: the record was lost. No proof is needed, since the pod is the only speaker.
func TakeBack(r Request) Transition {
	return func(old v1alpha1.IPLeaseSpec, o Owner) (v1alpha1.IPLeaseSpec, error) {
		if !quarantinedFor(&old, r.Holder.MAC) {
			return old, fmt.Errorf("%w: %s", ErrState, describe(&old))
		}
		return bindAgain(old, r, o), nil
	}
}

// TakeProven takes a lease over whose last holder is proven fenced, gone or silent already.
func TakeProven(r Request) Transition { return both(TakeOver(r), Confirm) }

// Confirm ends a take-over after its verification found the address safe.
func Confirm(s v1alpha1.IPLeaseSpec, o Owner) (v1alpha1.IPLeaseSpec, error) {
	return from(v1alpha1.StateBound, func(s *v1alpha1.IPLeaseSpec, _ time.Time) {
		s.Previous, s.Conflict = nil, nil
		s.Reason, s.Message = "", ""
	})(s, o)
}

// TakeUnproven keeps a Quarantined lease for the request's pod, because this node found no proof of its last holder. By
// this record, the agent of the last holder knows that the machine lives in another pod.
func TakeUnproven(r Request, message string) Transition {
	return both(TakeOver(r), Unverified(message))
}

// both makes one write of two transitions.
func both(first, second Transition) Transition {
	return func(old v1alpha1.IPLeaseSpec, o Owner) (v1alpha1.IPLeaseSpec, error) {
		next, err := first(old, o)
		if err != nil {
			return old, err
		}
		return second(next, o)
	}
}

// Unverified quarantines a lease again because its take-over found no proof. It
// stays kept for its pod, and this node continues the verification.
func Unverified(message string) Transition {
	return from(v1alpha1.StateBound, func(s *v1alpha1.IPLeaseSpec, now time.Time) {
		enter(s, v1alpha1.StateQuarantined, v1alpha1.ReasonUnverified, message, now)
	})
}

// Retain keeps an address for the pod's name, after a verification or a DEL, whose fence is proof.
func Retain(old v1alpha1.IPLeaseSpec, o Owner) (v1alpha1.IPLeaseSpec, error) {
	if old.Holder == nil || (old.State != v1alpha1.StateBound && old.State != v1alpha1.StateQuarantined) {
		return old, fmt.Errorf("retain: %w: %s", ErrState, describe(&old))
	}
	reason := v1alpha1.LeaseReason("")
	if old.Reason == v1alpha1.ReasonMigrated {
		reason = old.Reason // the machine lives in another pod than the last holder, which is not deleted
	}
	enter(&old, v1alpha1.StateRetained, reason, "", o.Now)
	old.Previous, old.Conflict = nil, nil
	// The sandbox is gone. The MAC stays, since late frames may still carry it.
	old.Holder.ContainerID = ""
	return old, nil
}

// KeepForPod keeps an address for the next sandbox of its holder's pod, after a verification or
// after a DEL, whose fence is the proof.
func KeepForPod(old v1alpha1.IPLeaseSpec, o Owner) (v1alpha1.IPLeaseSpec, error) {
	next, err := Retain(old, o)
	if err != nil {
		return next, err
	}
	next.Reason = v1alpha1.ReasonSandboxEnded
	if p := old.Previous; p != nil && p.Node != "" && p.PodUID == old.Holder.PodUID {
		// The pod lives there, and another node has verified the address. Agents of other nodes
		// must not take the address over.
		next.NodeName = p.Node
	}
	next.Message = "the sandbox has ended; the next sandbox of the pod gets the address"
	return next, nil
}

// Quarantine quarantines a Bound lease until its holder is proven fenced, gone or silent. A
// recorded predecessor stays as it is, because the reason does not concern it.
func Quarantine(reason v1alpha1.LeaseReason, message string) Transition {
	return from(v1alpha1.StateBound, func(s *v1alpha1.IPLeaseSpec, now time.Time) {
		previous := lastHolder(*s)
		if s.Previous == nil {
			previous.Reason, previous.Since = reason, metav1.NewTime(now)
		}
		enter(s, v1alpha1.StateQuarantined, reason, message, now)
		s.Previous = previous
	})
}

// QuarantineConflict quarantines a lease because another host answered the probe of its ADD. The
// pod gets another address, so the lease no longer has a holder.
func QuarantineConflict(e Evidence) Transition {
	return from(v1alpha1.StateBound, func(s *v1alpha1.IPLeaseSpec, now time.Time) {
		enter(s, v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, conflictMessage(e), now)
		s.Conflict = note(s.Conflict, e, now)
		s.Holder, s.Retention = nil, nil
	})
}

// ThrowOut quarantines a Warm lease whose address another host uses.
func ThrowOut(e Evidence) Transition {
	return from(v1alpha1.StateWarm, func(s *v1alpha1.IPLeaseSpec, now time.Time) {
		enter(s, v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, conflictMessage(e), now)
		s.Conflict = note(s.Conflict, e, now)
	})
}

// RecordConflict records that another host uses the address too. Its holder keeps it.
func RecordConflict(e Evidence) Transition {
	return from(v1alpha1.StateBound, func(s *v1alpha1.IPLeaseSpec, now time.Time) {
		s.Conflict = note(s.Conflict, e, now)
		s.Message = conflictMessage(e)
	})
}

// SetMAC records a new MAC of the holder of a Bound lease.
func SetMAC(mac string) Transition {
	return from(v1alpha1.StateBound, func(s *v1alpha1.IPLeaseSpec, _ time.Time) { s.Holder.MAC = mac })
}

// SetGuarded records whether the guard of the holder of a Bound lease can enforce a fence.
func SetGuarded(is bool) Transition {
	return from(v1alpha1.StateBound, func(s *v1alpha1.IPLeaseSpec, _ time.Time) { s.Holder.Guarded = is })
}

// from restricts a transition to the leases in a state.
func from(state v1alpha1.LeaseState, change func(s *v1alpha1.IPLeaseSpec, now time.Time)) Transition {
	return func(s v1alpha1.IPLeaseSpec, o Owner) (v1alpha1.IPLeaseSpec, error) {
		if s.State != state {
			return s, fmt.Errorf("%w: %s", ErrState, describe(&s))
		}
		change(&s, o.Now)
		return s, nil
	}
}

// enter puts a spec into a state.
func enter(s *v1alpha1.IPLeaseSpec, state v1alpha1.LeaseState, reason v1alpha1.LeaseReason, message string, now time.Time) {
	s.State, s.Reason, s.Message = state, reason, message
	s.Since = metav1.NewTime(now)
}

// lastHolder returns the holder that may still use the address. The nodeName of a
// Quarantined lease is its verifier, so a recorded spec.previous is preferred.
func lastHolder(s v1alpha1.IPLeaseSpec) *v1alpha1.PreviousHolder {
	if s.Previous != nil {
		return s.Previous.DeepCopy()
	}
	p := &v1alpha1.PreviousHolder{Session: s.Session, Reason: s.Reason, Since: s.Since}
	if s.State == v1alpha1.StateBound {
		p.Node = s.NodeName
	}
	if s.Holder != nil {
		p.PodUID, p.MAC, p.Token = s.Holder.PodUID, s.Holder.MAC, s.Holder.Token
		p.Guarded = s.Holder.Guarded || s.State != v1alpha1.StateBound // it was given up, or never used
	}
	return p
}

// note returns the conflict with one more observation.
func note(c *v1alpha1.Conflict, e Evidence, now time.Time) *v1alpha1.Conflict {
	next := v1alpha1.Conflict{FirstSeen: metav1.NewTime(now)}
	if c != nil {
		next = *c
	}
	next.Count++
	next.LastSeen = metav1.NewTime(now)
	next.MAC, next.Source = e.MAC, e.Source
	return &next
}

func conflictMessage(e Evidence) string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("%s uses the address too (%s)", e.MAC, e.Source)
}

// describe returns the state of a lease and its holder, for error texts.
func describe(s *v1alpha1.IPLeaseSpec) string {
	text := string(s.State)
	if s.Reason != "" {
		text += " (" + string(s.Reason) + ")"
	}
	if s.Holder != nil {
		text += " for pod " + s.Holder.Namespace + "/" + s.Holder.Pod
	}
	if s.NodeName != "" {
		text += " on node " + s.NodeName
	}
	return text
}
