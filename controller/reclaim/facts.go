// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/story"
)

// View is the knowledge about an object. In the zero View the object is unknown, and an unknown
// object counts as in use (R11).
type View[T any] struct {
	// Known is false if the object was not read or could not be read.
	Known bool
	// Object is nil if the object does not exist.
	Object *T
	// AbsentSince is when the absence was first seen.
	AbsentSince time.Time
}

// Facts are the input of Decide.
type Facts struct {
	Lease *v1alpha1.IPLease
	// Pool is the pool of the lease, or nil. Decide reads its Policy only.
	Pool *v1alpha1.IPPool
	// Pod is the pod with the holder's namespace and name. Its UID may be another one.
	Pod View[podview.Pod]
	// PodSeen is true if this look or an earlier look found the holder's own pod.
	PodSeen bool
	// FinishedSeen is when the holder's pod was first seen as finished. It is zero for other pods.
	FinishedSeen time.Time
	// Node is the node of the holder, or of the previous holder of a Quarantined lease.
	Node View[corev1.Node]
	// Offer is read only from the API server, before an address is taken from a node that is not Ready.
	Offer Offer
	// Verifier is set for Quarantined leases only.
	Verifier Verifier
	// Givers is set only for Quarantined leases that never had a holder.
	Givers Givers
	// AgentAbsentSince is when the node of a Warm lease was first seen without a working agent. It is
	// zero if the node has a working agent, and for other leases.
	AgentAbsentSince time.Time
	// Owner is set for Retained leases only.
	Owner Owner
	// Successor is the lease that the next pod with the identity of a Retained lease's holder got
	// instead, for the same interface. It is nil if there is none. With a Successor, Pod is its pod.
	Successor *v1alpha1.IPLease
	// Reserved is the reservation that keeps the address of a Retained lease for another identity than that of
	// its holder. It is nil if there is none.
	Reserved *v1alpha1.ReservedIP
	// Migration is set only for Bound leases of virtual machines.
	Migration Migration
	Policy    Policy
	Now       time.Time
}

// Verifier is the state of the node that a Quarantined lease is assigned to.
type Verifier struct {
	// Node is the node named by spec.nodeName.
	Node View[corev1.Node]
	// Alive is true if the node and its agent are Ready.
	Alive bool
	// AwaySince is when the verifier was first seen as not alive. It is zero while it is alive.
	AwaySince time.Time
	// AskedAt is when the lease was first seen with this verifier.
	AskedAt time.Time
	// Changes is how often the verifier was changed in this quarantine.
	Changes int
}

// Kind is the kind of an Action.
type Kind string

// The kinds of actions.
const (
	// None leaves the lease alone.
	None Kind = "None"
	// Wait leaves the lease alone until Action.Until.
	Wait Kind = "Wait"
	// DeletePod deletes the pod. The address is taken in a later decision (R12).
	DeletePod Kind = "DeletePod"
	// Quarantine takes the address from its holder for Action.Reason.
	Quarantine Kind = "Quarantine"
	// Reassign assigns another verifier.
	Reassign Kind = "Reassign"
	// EndRetention frees the address of a Retained lease.
	EndRetention Kind = "EndRetention"
	// EndQuarantine deletes a Quarantined lease that never had a holder.
	EndQuarantine Kind = "EndQuarantine"
)

// Action is a decision about a lease.
type Action struct {
	Kind   Kind
	Reason v1alpha1.LeaseReason
	// Until is the time of the next decision, for Wait.
	Until time.Time
	// Verifier is the node that verifies, for Quarantine. If it is empty, the best one is chosen.
	Verifier string
	// Force deletes the pod with a grace period of 0, for DeletePod. Its node is asserted to be gone,
	// so no kubelet can end the pod within a grace period.
	Force bool
	// Tell writes Why to the lease's message, for None and Wait.
	Tell bool
	// Withheld is true for None if the lease is due for Reason and reclaim is switched off.
	Withheld bool
	// Why explains the decision to an operator.
	Why string
}

// Destructive reports whether live reads must confirm the action (R11).
func (a Action) Destructive() bool {
	return a.Kind == DeletePod || a.Kind == Quarantine || a.Kind == EndRetention || a.Kind == EndQuarantine
}

// SameAs reports whether two actions do the same. Their explanations and times may differ.
func (a Action) SameAs(b Action) bool {
	return a.Kind == b.Kind && a.Reason == b.Reason && a.Force == b.Force && a.Verifier == b.Verifier
}

// Sentence says what the controller does next. A zero now leaves out the time until then.
func (a Action) Sentence(now time.Time) string {
	does := "leaves the lease as it is"
	switch a.Kind {
	case Wait:
		does = "decides again at " + story.When(a.Until, now)
	case DeletePod:
		does = "deletes the pod, and then takes the address"
	case Quarantine:
		does = fmt.Sprintf("takes the address (%s)", a.Reason)
	case Reassign:
		does = "asks another node to verify"
	case EndRetention, EndQuarantine:
		does = "frees the address"
	}
	return fmt.Sprintf("The controller %s: %s.", does, strings.TrimSuffix(a.Why, "."))
}
