package lease

import "github.com/fenceline/fenceline/apis/v1alpha1"

// PodState is what Kubernetes wants of a pod, read live and by UID.
type PodState int

const (
	// PodUnknown: it could not be asked. The zero value.
	PodUnknown PodState = iota
	// PodWanted: the pod lives with this UID and is neither terminating nor finished.
	PodWanted
	// PodUnwanted: gone, terminating, finished, or replaced by another UID.
	PodUnwanted
)

// Phase is how far an ADD or DEL had come according to the journal.
type Phase int

const (
	// PhaseIntent: an ADD that was not answered.
	PhaseIntent Phase = iota
	// PhaseBound: an ADD that was answered.
	PhaseBound
	// PhaseReleasing: a DEL that was not finished.
	PhaseReleasing
)

// Known is what this node remembers of an address, and what it finds.
type Known struct {
	Phase                  Phase
	ContainerID, Interface string
	LeaseUID               string // empty where the answer to the create was lost
	// EntrySession is the session that the journal entry was written in.
	EntrySession string
	// Node and Session of this agent.
	Node, Session string
	Pod           PodState
	// Fenced tells that a newer claim for the address was ever heard here.
	Fenced bool
}

// Action is what to do about an address after a restart or a reconnect.
type Action int

const (
	// Wait: nothing can be decided yet; leave everything as it is. The zero value.
	Wait Action = iota
	// GoOn: the lease is this container's.
	GoOn
	// Fence: kill the slot and forget the address; the lease is none of ours.
	Fence
	// FenceAndDeletePod: Fence, and delete the pod (uid precondition, event),
	// since it would stay Ready and mute.
	FenceAndDeletePod
	// Release: fence, then free or retain the lease, as DEL does.
	Release
	// Recreate the lease for the living pod.
	Recreate
	// Quarantine the lease: it was bound in another session, and only a
	// verification may free it (R8).
	Quarantine
)

// Resume decides by the lease as a GET by name found it (R7), nil when there is none.
func Resume(k Known, l *v1alpha1.IPLease) Action { return Wait }

// NeedsVerification tells whether a lease may be bound or freed in a session
// only after its last holder was proven fenced, gone or silent (R1, R8).
func NeedsVerification(s *v1alpha1.IPLeaseSpec, session string) bool { return true }
