// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"cmp"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Next returns the status of a node's hint. leases have the node as their own or as that of their previous
// holder. left are the leases that left the node since the hint was written, oldest first. An answered
// question keeps its answer, which the controller's cache does not have. leader is the ID of this controller.
func Next(h *v1alpha1.LeaseHint, leader string, leases []v1alpha1.IPLease, left []v1alpha1.LeaseVersion) v1alpha1.LeaseHintStatus {
	next := h.Status
	next.Leader, next.Changed = leader, nil
	var own, conflicts []v1alpha1.LeaseVersion // conflicts: of no previous holder
	for i := range leases {
		l := &leases[i]
		if l.Spec.NodeName == h.Name {
			own = append(own, versionOf(l))
		}
		switch {
		case !slices.Contains(concerned(l), h.Name):
		case l.Spec.Previous == nil:
			conflicts = append(conflicts, versionOf(l))
		default:
			next.Changed = append(next.Changed, versionOf(l))
		}
	}
	slices.SortFunc(next.Changed, byVersion)
	slices.SortFunc(conflicts, byVersion)
	next.Changed = append(next.Changed, conflicts...)
	next.Changed = next.Changed[:min(len(next.Changed), v1alpha1.MaxHintLeases)]
	next.Left = append(slices.DeleteFunc(slices.Clone(h.Status.Left), func(old v1alpha1.LeaseVersion) bool {
		return slices.ContainsFunc(left, func(l v1alpha1.LeaseVersion) bool { return l.Name == old.Name })
	}), left...)
	next.Left = next.Left[max(0, len(next.Left)-v1alpha1.MaxHintLeft):]
	if h.Spec.Start == h.Status.Start {
		return next
	}
	next.Start, next.Leases, next.All = h.Spec.Start, own, false
	if len(own) > v1alpha1.MaxHintLeases {
		next.Leases, next.All = nil, true
	}
	slices.SortFunc(next.Leases, byVersion)
	return next
}

func versionOf(l *v1alpha1.IPLease) v1alpha1.LeaseVersion {
	return v1alpha1.LeaseVersion{Name: l.Name, Version: l.ResourceVersion}
}

// byVersion orders leases by their last write. The version is a number without leading zeros (KEP-5504).
func byVersion(a, b v1alpha1.LeaseVersion) int {
	return cmp.Or(cmp.Compare(len(a.Version), len(b.Version)), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Name, b.Name))
}

// concerned returns the nodes whose agents read a lease because of its state: the verifier of a Quarantined
// lease, and the node of the previous holder.
func concerned(l *v1alpha1.IPLease) (nodes []string) {
	if l.Spec.State == v1alpha1.StateQuarantined && l.Spec.NodeName != "" {
		nodes = append(nodes, l.Spec.NodeName)
	}
	if p := l.Spec.Previous; p != nil && p.Node != "" && !slices.Contains(nodes, p.Node) {
		nodes = append(nodes, p.Node)
	}
	return nodes
}

// leaves returns the node that a change of a lease took it from, or "" if there is none. now is nil if the
// lease was deleted. An agent deletes its own Bound, Warm and Quarantined leases, and this tells nothing to it;
// if another deletes a Quarantined one, its name vanishes from the hint. A person who edits a lease in place annotates
// it.
func leaves(was, now *v1alpha1.IPLease) string {
	if now != nil {
		if now.UID == was.UID && now.Spec.NodeName == was.Spec.NodeName && !isForced(now) && !goesBack(was, now) {
			return ""
		}
		return was.Spec.NodeName
	}
	if isForced(was) || was.Spec.State == v1alpha1.StateRetained {
		return was.Spec.NodeName
	}
	return ""
}

// isForced reports whether a person may change a lease.
func isForced(l *v1alpha1.IPLease) bool {
	_, forced := l.Annotations[v1alpha1.AnnotationForceDelete]
	return forced
}

// goesBack reports whether a change of a lease asks its agent to give the pod back to another IPAM.
func goesBack(was, now *v1alpha1.IPLease) bool {
	asked := now.Annotations[v1alpha1.AnnotationMoveBack]
	return asked != "" && asked != was.Annotations[v1alpha1.AnnotationMoveBack]
}

// isNote reports whether a change of a lease is at most a note: its message, the last sighting of a conflict,
// labels. The verifier itself makes them.
func isNote(was, now *v1alpha1.IPLease) bool {
	a, b := was.Spec, now.Spec
	samePrevious := a.Previous == b.Previous || a.Previous != nil && b.Previous != nil && *a.Previous == *b.Previous
	sameHolder := a.Holder == b.Holder || a.Holder != nil && b.Holder != nil && *a.Holder == *b.Holder
	return !isForced(now) && !goesBack(was, now) && was.UID == now.UID && a.State == b.State && a.Reason == b.Reason && a.NodeName == b.NodeName && a.Session == b.Session &&
		samePrevious && sameHolder
}
