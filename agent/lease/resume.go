// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// PodState is the wish of Kubernetes for a pod, read live and by UID.
type PodState int

const (
	// PodUnknown: Kubernetes did not answer. The zero value.
	PodUnknown PodState = iota
	// PodWanted: the pod lives with this UID and is neither terminating nor finished.
	PodWanted
	// PodUnwanted: gone, terminating, finished, or replaced by another UID.
	PodUnwanted
)

// Known is the node's record of an answered ADD of this session, with the facts that it finds now.
type Known struct {
	ContainerID, Interface string
	PodUID, MAC            string
	// Machine is the name of the virtual machine that the pod runs, in Namespace.
	Machine, Namespace string
	// LeaseUID is empty if the answer to the create was lost.
	LeaseUID string
	// Node and Session of this agent.
	Node, Session string
	Pod           PodState
	// Fenced reports whether a newer claim for the address was ever heard here, or its slot was killed.
	Fenced bool
	// Moved: the address moved here from an older sandbox of the pod, and the lease may still name that one.
	Moved bool
	// GivesWay: the slot was killed, or the claim is of a pod whose lease the store has lost.
	GivesWay bool
}

// Action is the step to take for an address after a restart or a reconnect.
type Action string

const (
	// Wait: the decision needs a fact that is not known yet; change nothing.
	Wait Action = "Wait"
	// GoOn: the lease is this container's.
	GoOn Action = "GoOn"
	// Release: kill the slot and release the address as DEL does. A lease that is
	// not this container's stays as it is, and a lease that was bound in another
	// session is quarantined, so that only a verification frees it (R8).
	Release Action = "Release"
	// FenceAndDeletePod: kill the slot and delete the pod, which would stay Ready without network.
	FenceAndDeletePod Action = "FenceAndDeletePod"
	// FenceAndAsk: kill the slot at once, and decide about the pod once the API server answers.
	FenceAndAsk Action = "FenceAndAsk"
	// Rebind: write the lease for the living pod again. Either there is no lease, or
	// another node created one meanwhile and quarantined it because our pod answered its
	// probe, or the store went back to the Warm lease that the pod had got.
	Rebind Action = "Rebind"
	// RecordMove: write the lease for this sandbox. It names an older one of the same pod, from which the
	// address has moved here while the API server was away.
	RecordMove Action = "RecordMove"
	// RenewToken: renew the token of the lease, and end the fence once it is proven that no other
	// host speaks. The pod was fenced by a claim that no other pod of this cluster can have sent.
	RenewToken Action = "RenewToken"
)

// Resume decides about an address of a pod of this session by the lease that a
// GET by name returned (R7); l is nil if there is none.
func Resume(k Known, l *v1alpha1.IPLease) Action {
	switch {
	case l == nil:
		return resumeWithout(k)
	case k.Moved && k.passedOn(l):
		return RecordMove
	case !k.holds(l):
		return resumeLost(k, l)
	case l.Spec.Session != k.Session:
		return Release
	case k.Fenced && k.GivesWay:
		// The record still names this pod, but a token that is newer than ours exists.
		return k.yield()
	case k.Fenced:
		return RenewToken
	}
	return GoOn
}

// resumeWithout decides without a lease: a person deleted it.
func resumeWithout(k Known) Action {
	if k.Fenced {
		return k.yield()
	}
	switch k.Pod {
	case PodWanted:
		return Rebind
	case PodUnwanted:
		return Release
	}
	return Wait
}

// resumeLost decides about a lease that is not this container's.
func resumeLost(k Known, l *v1alpha1.IPLease) Action {
	// A newer sandbox of the same pod has the address: the pod keeps its network.
	if k.passedOn(l) {
		return Release
	}
	if k.migrated(&l.Spec) {
		// Until the target is proven, the slot lives: a dead slot sends no ack.
		if l.Spec.State == v1alpha1.StateQuarantined || l.Spec.Previous != nil {
			return Wait
		}
		return Release
	}
	if !k.Fenced && (quarantinedFor(&l.Spec, k.MAC) || k.keptReady(&l.Spec)) {
		switch k.Pod {
		case PodWanted:
			return Rebind
		case PodUnknown:
			return Wait
		}
	}
	return k.yield()
}

// passedOn reports whether the lease is Bound here to another sandbox of the same pod.
func (k Known) passedOn(l *v1alpha1.IPLease) bool {
	h := l.Spec.Holder
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == k.Node && l.Spec.Session == k.Session &&
		h != nil && h.ContainerID != k.ContainerID && h.Interface == k.Interface && h.PodUID != "" && h.PodUID == k.PodUID
}

// migrated reports whether the virtual machine of the pod went on to another pod. KubeVirt ends the
// pod: after a migration by post-copy, the machine still needs its memory (R15).
func (k Known) migrated(s *v1alpha1.IPLeaseSpec) bool {
	who := owner.MachinePod(k.Namespace, "", k.PodUID, k.Machine)
	return owner.Same(s.Holder, &who) && (s.Holder.PodUID != k.PodUID || s.Reason == v1alpha1.ReasonMigrated ||
		s.Previous != nil && s.Previous.PodUID == k.PodUID && s.Previous.Reason == v1alpha1.ReasonMigrated)
}

// quarantinedFor reports whether a lease was quarantined because this MAC answered a probe. A lease
// with a predecessor does not count: the predecessor must be proven silent first (R1).
func quarantinedFor(s *v1alpha1.IPLeaseSpec, mac string) bool {
	return s.State == v1alpha1.StateQuarantined && s.Reason == v1alpha1.ReasonConflict &&
		s.Holder == nil && s.Previous == nil && s.Conflict != nil && s.Conflict.MAC != "" && s.Conflict.MAC == mac
}

// keptReady reports whether this node keeps the address ready in this session. The living pod is
// the last that got the address here: the record went back to a time before that.
func (k Known) keptReady(s *v1alpha1.IPLeaseSpec) bool {
	return s.State == v1alpha1.StateWarm && s.NodeName == k.Node && s.Session == k.Session
}

// holds reports whether the lease is still the container's.
func (k Known) holds(l *v1alpha1.IPLease) bool {
	h := l.Spec.Holder
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == k.Node &&
		h != nil && h.ContainerID == k.ContainerID && h.Interface == k.Interface &&
		(k.LeaseUID == "" || k.LeaseUID == string(l.UID))
}

// yield takes the address from a pod that may still be wanted.
func (k Known) yield() Action {
	switch k.Pod {
	case PodWanted:
		return FenceAndDeletePod
	case PodUnknown:
		return FenceAndAsk
	}
	return Release
}

// NeedsVerification reports whether the last holder of a lease must be proven
// fenced, gone or silent before the address is bound or freed in a session
// (R1, R8). A Retained lease was proven when it became Retained.
func NeedsVerification(s *v1alpha1.IPLeaseSpec, session string) bool {
	switch s.State {
	case v1alpha1.StateRetained:
		return false
	case v1alpha1.StateBound, v1alpha1.StateWarm:
		return s.Session != session || s.Previous != nil
	}
	return true
}

// HasPredecessor reports whether a Quarantined lease names a holder that may be
// claimed against. A lease that was quarantined because of a stranger does not: the
// stranger may be a pod whose record was lost (R4). Nor does that of another IPAM's record without a pod.
func HasPredecessor(s *v1alpha1.IPLeaseSpec) bool {
	return s.Reason != v1alpha1.ReasonConflict && s.Reason != v1alpha1.ReasonMovingIn || s.Previous != nil
}

// Asserted reports whether Kubernetes or a person asserts the end of the last holder. Only the
// reason in spec.previous counts: the lease's own reason may be about another machine, on which a
// take-over was not confirmed, or about a later conflict.
func Asserted(s *v1alpha1.IPLeaseSpec) bool {
	p := s.Previous
	return p != nil && (p.Reason == v1alpha1.ReasonNodeGone || p.Reason == v1alpha1.ReasonOutOfService)
}
