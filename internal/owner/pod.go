// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// IsUID reports whether the runtime's UID is the pod's. An old runtime passes none.
func IsUID(pod *corev1.Pod, uid string) bool {
	return uid == "" || string(pod.UID) == uid || StaticUID(pod.Annotations) == uid
}

// UID returns the UID by which the runtime knows the pod. It stays the same for the life of the
// pod: a mirror pod may be deleted and created again while its static pod runs on.
func UID(pod *corev1.Pod) string {
	return cmp.Or(StaticUID(pod.Annotations), string(pod.UID))
}

// HasFinished reports whether a pod has Succeeded or Failed: no container of it will run again.
func HasFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Ends reports whether the deletion of a pod ends its containers. That of a mirror pod ends none.
func Ends(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && StaticUID(pod.Annotations) == ""
}
