// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// BehindLimit is the longest time for which a target stands behind its source, longer than any
// migration. The end of the target's pod fails the migration; the source goes on.
const BehindLimit = 24 * time.Hour

// turnPause is the pause after a turn for which there was no proof. On the node of the target only an ack is
// proof, because its kernel hears no speaker of a fenced address. Meanwhile the controller assigns
// the lease to another node, for which silence is proof as well.
const turnPause = 15 * time.Second

// IsStandby reports whether the ADD of a pod does not wait for an address, but stands behind its
// holder: the pod is the target of a live migration, and the address is that of its virtual machine,
// which still runs in another pod of another node (R15).
func IsStandby(who *v1alpha1.Holder, isTarget bool, node string, l *v1alpha1.IPLeaseSpec) bool {
	return isTarget && owner.IsMachine(who) && l.State == v1alpha1.StateBound &&
		owner.Same(l.Holder, who) && l.Holder.PodUID != who.PodUID && l.NodeName != node
}

// Turn is the step of a pod that stands behind a holder.
type Turn int

const (
	// StayBehind: the holder still has the address. The zero value.
	StayBehind Turn = iota
	// TakeTurn: verify the last holder, and bind the lease.
	TakeTurn
	// LoseTurn: the pod never gets the address.
	LoseTurn
)

// TurnOf decides about a pod that has stood behind a holder since a time, by the lease that a GET by
// name returned (R7); l is nil if there is none. The controller assigns the lease to the node of the
// pod when the source of the migration is paused or gone.
func TurnOf(who *v1alpha1.Holder, node string, since, now time.Time, l *v1alpha1.IPLease) Turn {
	switch {
	case l == nil || !owner.Same(l.Spec.Holder, who):
		return LoseTurn
	case l.Spec.State == v1alpha1.StateRetained:
		return TakeTurn
	case l.Spec.Reason == v1alpha1.ReasonUnverified && now.Sub(l.Spec.Since.Time) < turnPause:
		return StayBehind
	case l.Spec.State == v1alpha1.StateQuarantined && l.Spec.NodeName == node:
		return TakeTurn
	case l.Spec.State == v1alpha1.StateBound && l.Spec.Holder.PodUID == who.PodUID:
		return TakeTurn // the answer to the take-over was lost
	case now.Sub(since) > BehindLimit:
		return LoseTurn
	}
	return StayBehind
}
