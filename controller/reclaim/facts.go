package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/controller/retention"
)

// View is what is known of an object. The zero View knows nothing, and what is
// not known is in use (R11).
type View[T any] struct {
	// Known is false where the object was not or could not be read.
	Known bool
	// Object is nil where the object does not exist.
	Object *T
	// AbsentSince is when the absence was first seen.
	AbsentSince time.Time
}

// Absent says whether the object is known not to exist.
func (v View[T]) Absent() bool { return v.Known && v.Object == nil }

// Facts are everything that Decide looks at.
type Facts struct {
	Lease *v1alpha1.IPLease
	// Pod is the pod of the holder's namespace and name, whatever its UID.
	Pod View[podview.Pod]
	// PodSeen: an earlier look found the holder's own pod.
	PodSeen bool
	// FinishedSeen is when the holder's pod was first seen to be finished; zero while it is not.
	FinishedSeen time.Time
	// Node is the holder's node; of a Quarantined lease the node it was taken from.
	Node View[corev1.Node]
	// Offer is asked of the API server only, before an address is taken from a node that is not Ready.
	Offer Offer
	// Verifier is asked of Quarantined leases only.
	Verifier Verifier
	// AgentAbsentSince is when the node of a Warm lease was first seen without an
	// agent that works; zero while it has one, and of other leases.
	AgentAbsentSince time.Time
	// Owner is asked of Retained leases only.
	Owner retention.Owner
	// Successor is the lease that the next pod of a Retained lease's name has got
	// instead, for the same interface; nil if there is none. Pod is known with it.
	Successor *v1alpha1.IPLease
	Policy    Policy
	Now       time.Time
}

// Verifier is the state of the node that a Quarantined lease is assigned to.
type Verifier struct {
	// Node of spec.nodeName.
	Node View[corev1.Node]
	// Alive: the node is Ready and so is its agent.
	Alive bool
	// AwaySince is when it was first seen not to be alive; zero while it is.
	AwaySince time.Time
	// AskedAt is when the lease was first seen with this verifier.
	AskedAt time.Time
	// Changes counts how often the verifier was changed in this quarantine.
	Changes int
}

// Kind of an Action.
type Kind string

// The kinds of actions.
const (
	// None: the lease is left alone.
	None Kind = "None"
	// Wait: the lease is left alone until Action.Until.
	Wait Kind = "Wait"
	// DeletePod: the pod goes first, then the facts are looked at again (R12).
	DeletePod Kind = "DeletePod"
	// Quarantine takes the address from its holder, for Action.Reason.
	Quarantine Kind = "Quarantine"
	// Reassign asks another verifier.
	Reassign Kind = "Reassign"
	// EndRetention frees the address of a Retained lease.
	EndRetention Kind = "EndRetention"
)

// Action is what to do with a lease.
type Action struct {
	Kind   Kind
	Reason v1alpha1.LeaseReason
	// Until is the time to look again, of Wait.
	Until time.Time
	// Force deletes the pod with a grace period of 0, of DeletePod: its node is
	// said to be gone, so nobody is left who could use the grace.
	Force bool
	// Tell puts Why on the lease, of None and Wait: people will ask why nothing is done.
	Tell bool
	// Withheld: the lease is due for Reason, of None, but reclaim is switched off.
	Withheld bool
	// Why is a sentence for people.
	Why string
}

// Destructive says whether the action needs to be confirmed by live reads (R11).
func (a Action) Destructive() bool {
	switch a.Kind {
	case DeletePod, Quarantine, EndRetention:
		return true
	default:
		return false
	}
}

// SameAs says whether two decisions ask for the same act. Sentences and times may differ.
func (a Action) SameAs(b Action) bool {
	return a.Kind == b.Kind && a.Reason == b.Reason && a.Force == b.Force
}
