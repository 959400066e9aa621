package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/controller/podview"
)

// configHash is the annotation of a static pod's mirror pod that carries the
// UID which the kubelet gives to the runtime. The mirror pod's own UID is another.
const configHash = "kubernetes.io/config.hash"

// defaultGrace is the terminationGracePeriodSeconds of a pod that names none.
const defaultGrace = 30 * time.Second

// isHolder says whether the pod is the one whose UID a lease recorded. One that was
// not recorded is nobody's.
func isHolder(pod *podview.Pod, uid string) bool {
	return uid != "" && (string(pod.UID) == uid || pod.Annotations[configHash] == uid)
}

// isStaticUID tells the UID of a static pod (a hash) from the API server's (RFC
// 9562). One that was not recorded may be either.
func isStaticUID(uid string) bool {
	for _, r := range uid {
		if r == '-' {
			return false
		}
	}
	return true
}

func isFinished(pod *podview.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isTerminating(pod *podview.Pod) bool { return pod.DeletionTimestamp != nil }

// isForceDeleted says whether the pod was deleted without grace, and is kept by finalizers only.
func isForceDeleted(pod *podview.Pod) bool {
	return isTerminating(pod) && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// finishedAt is the latest moment that a finished pod's status tells of. An
// evicted pod may have no container statuses, then its conditions tell; a pod
// that was never started tells nothing but its creation.
func finishedAt(pod *podview.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	later := func(t time.Time) {
		if t.After(at) {
			at = t
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for _, s := range statuses {
			if s.State.Terminated != nil {
				later(s.State.Terminated.FinishedAt.Time)
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		later(c.LastTransitionTime.Time)
	}
	return at
}

// finishedAt is when the pod had finished. What its status tells has the time of
// its node's clock; no pod has finished after it was seen to be.
func (f Facts) finishedAt() time.Time {
	at := finishedAt(f.Pod.Object)
	if seen := f.FinishedSeen; !seen.IsZero() && seen.Before(at) {
		return seen
	}
	return at
}

func gracePeriod(pod *podview.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return defaultGrace
}
