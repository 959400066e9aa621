// SPDX-License-Identifier: Apache-2.0

package holder

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// Of describes the holder that the lease of a pod's interface names.
func Of(pod *corev1.Pod, a agentapi.Attachment, mac string) v1alpha1.Holder {
	holder := v1alpha1.Holder{
		Namespace: pod.Namespace, Pod: pod.Name, PodUID: runtimeUID(pod),
		Interface: a.Interface, ContainerID: a.ContainerID,
		MAC: mac, Guarded: true,
	}
	if ref, ok := owner.Of(pod); ok {
		holder.OwnerGroup, holder.OwnerKind, holder.OwnerName = ref.Group, ref.Kind, ref.Name
	}
	return holder
}

// IsUID reports whether the runtime's UID is the pod's. An old runtime passes none.
func IsUID(pod *corev1.Pod, uid string) bool {
	return uid == "" || string(pod.UID) == uid || owner.StaticUID(pod.Annotations) == uid
}

// runtimeUID returns the UID by which the runtime knows the pod. It stays the same for
// the life of the pod: a mirror pod may be deleted and created again while its static
// pod runs on.
func runtimeUID(pod *corev1.Pod) string {
	if uid := owner.StaticUID(pod.Annotations); uid != "" {
		return uid
	}
	return string(pod.UID)
}
