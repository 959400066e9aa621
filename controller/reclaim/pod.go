// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/owner"
)

// defaultGrace is the API's default of terminationGracePeriodSeconds.
const defaultGrace = 30

// isHolder reports whether the pod has the UID that a lease recorded. It is false if no UID was
// recorded.
func isHolder(pod *podview.Pod, uid string) bool {
	return uid != "" && (string(pod.UID) == uid || owner.StaticUID(pod.Annotations) == uid)
}

// belongsTo reports whether a Bound lease names the pod, and was written on the pod's node.
func belongsTo(s *v1alpha1.IPLeaseSpec, pod *podview.Pod) bool {
	return s.NodeName == pod.Spec.NodeName && isHolder(pod, s.Holder.PodUID)
}

// isStaticUID reports whether a UID may be a static pod's. Such a UID is a hash, while the API
// server's UIDs have dashes (RFC 9562). An empty UID may be either.
func isStaticUID(uid string) bool { return !strings.Contains(uid, "-") }

// isMirrorOn reports whether a pod is the mirror pod of a static pod of a node.
func isMirrorOn(pod *podview.Pod, node string) bool {
	return owner.StaticUID(pod.Annotations) != "" && pod.Spec.NodeName == node
}

// isTerminating reports whether the deletion of a pod ends its containers. That of a mirror pod ends
// none: it stays Terminating until the kubelet makes it again, or removes it after its static pod.
func isTerminating(pod *podview.Pod) bool {
	return pod.DeletionTimestamp != nil && owner.StaticUID(pod.Annotations) == ""
}

// isForceDeleted reports whether the pod was deleted without a grace period. Only finalizers keep it.
func isForceDeleted(pod *podview.Pod) bool {
	return pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, defaultGrace) == 0
}

// finishedAt returns the latest time in a finished pod's status. An evicted pod may have no
// container statuses, but it has conditions. A pod that never started has its creation time only.
func finishedAt(pod *podview.Pod) time.Time {
	at := latest(pod.CreationTimestamp.Time, pod.LastEnd())
	for _, c := range pod.StatusOrEmpty().Conditions {
		at = latest(at, c.LastTransitionTime.Time)
	}
	return at
}

// finishedAt returns when the pod finished. The status has the time of the node's clock, which may be
// wrong, so the time at which the pod was first seen as finished is the upper limit.
func (f Facts) finishedAt() time.Time {
	at := finishedAt(f.Pod.Object)
	if seen := f.FinishedSeen; !seen.IsZero() && seen.Before(at) {
		return seen
	}
	return at
}

func gracePeriod(pod *podview.Pod) time.Duration {
	return time.Duration(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, defaultGrace)) * time.Second
}
