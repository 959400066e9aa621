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
	PodUID, MAC            string
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
	// FenceAndAsk: kill the slot at once, and decide about the pod when
	// Kubernetes can be asked.
	FenceAndAsk
	// Release: fence, then free or retain the lease, as DEL does.
	Release
	// Recreate the lease for the living pod, having cleared the lease's UID in
	// the journal: it will have another.
	Recreate
	// Rebind the lease: another node created it while there was none, and set
	// it aside because our pod answered its probe.
	Rebind
	// SetAside: quarantine the lease and forget the address. It was bound in
	// another session, so only a verification may free it (R8).
	SetAside
)

func (a Action) String() string {
	names := [...]string{"Wait", "GoOn", "Fence", "FenceAndDeletePod", "FenceAndAsk", "Release", "Recreate", "Rebind", "SetAside"}
	if a < 0 || int(a) >= len(names) {
		return "Action?"
	}
	return names[a]
}

// Resume decides about an address that this node remembers by the lease as a
// GET by name found it (R7), nil when there is none.
func Resume(k Known, l *v1alpha1.IPLease) Action {
	switch {
	case l == nil:
		return resumeWithout(k)
	case !k.holds(l):
		return resumeLost(k, l)
	case l.Spec.Session != k.Session:
		return SetAside
	case k.Phase != PhaseBound:
		return Release
	case k.Fenced:
		// The wire says that somebody was given the address, the record that
		// nobody was: the store went back. A newer token than ours is about.
		return k.yield()
	}
	return GoOn
}

// resumeWithout decides when there is no lease: deleted by hand, or by our
// own DEL, or never created.
func resumeWithout(k Known) Action {
	if k.Phase != PhaseBound || k.EntrySession != k.Session {
		return Fence
	}
	if k.Fenced {
		return k.yield()
	}
	switch k.Pod {
	case PodWanted:
		return Recreate
	case PodUnwanted:
		return Fence
	}
	return Wait
}

// resumeLost decides when the lease is not this container's.
func resumeLost(k Known, l *v1alpha1.IPLease) Action {
	if k.Phase != PhaseBound || k.EntrySession != k.Session {
		// No pod lives from this entry, so none has to go.
		return Fence
	}
	// A newer sandbox of the same pod has re-bound the address: the pod is well.
	if k.passedOn(l) {
		return Fence
	}
	if !k.Fenced && spokenForBy(&l.Spec, k.MAC) {
		switch k.Pod {
		case PodWanted:
			return Rebind
		case PodUnknown:
			return Wait
		}
	}
	return k.yield()
}

// passedOn tells whether the lease is Bound here to another sandbox of the same pod.
func (k Known) passedOn(l *v1alpha1.IPLease) bool {
	h := l.Spec.Holder
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == k.Node && l.Spec.Session == k.Session &&
		h != nil && h.ContainerID != k.ContainerID && h.Interface == k.Interface && h.PodUID != "" && h.PodUID == k.PodUID
}

// spokenForBy tells whether a lease was set aside because this MAC answered.
func spokenForBy(s *v1alpha1.IPLeaseSpec, mac string) bool {
	return s.State == v1alpha1.StateQuarantined && s.Reason == v1alpha1.ReasonConflict &&
		s.Holder == nil && s.Conflict != nil && s.Conflict.MAC != "" && s.Conflict.MAC == mac
}

// holds tells whether the lease is still the remembered container's.
func (k Known) holds(l *v1alpha1.IPLease) bool {
	h := l.Spec.Holder
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == k.Node &&
		h != nil && h.ContainerID == k.ContainerID && h.Interface == k.Interface &&
		(k.LeaseUID == "" || k.LeaseUID == string(l.UID))
}

// yield gives an address up under a pod that may still be wanted.
func (k Known) yield() Action {
	switch k.Pod {
	case PodWanted:
		return FenceAndDeletePod
	case PodUnknown:
		return FenceAndAsk
	}
	return Fence
}

// NeedsVerification tells whether the last holder of a lease must be proven
// fenced, gone or silent before the address is bound or freed in a session
// (R1, R8). A Retained lease was proven when it became so.
func NeedsVerification(s *v1alpha1.IPLeaseSpec, session string) bool {
	switch s.State {
	case v1alpha1.StateRetained:
		return false
	case v1alpha1.StateBound, v1alpha1.StateWarm:
		return s.Session != session || s.Previous != nil
	}
	return true
}
