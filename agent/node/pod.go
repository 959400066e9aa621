// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// Of describes the holder that the lease of a pod's interface names.
func Of(pod *corev1.Pod, a agentapi.Attachment, mac string) v1alpha1.Holder {
	holder := v1alpha1.Holder{
		Namespace: pod.Namespace, Pod: pod.Name, PodUID: UID(pod),
		Interface: a.Interface, ContainerID: a.ContainerID, MAC: mac, Guarded: true,
	}
	if ref, ok := owner.Of(pod); ok {
		holder.OwnerGroup, holder.OwnerKind, holder.OwnerName = ref.Group, ref.Kind, ref.Name
	}
	return holder
}

// OfEntry describes the holder of an entry.
func OfEntry(pod *corev1.Pod, e *attachment.Entry) v1alpha1.Holder {
	holder := Of(pod, e.Attachment(), e.MAC)
	holder.Guarded = !e.Unguarded && !e.Bypasses
	return holder
}

// IsUID reports whether the runtime's UID is the pod's. An old runtime passes none.
func IsUID(pod *corev1.Pod, uid string) bool {
	return uid == "" || string(pod.UID) == uid || owner.StaticUID(pod.Annotations) == uid
}

// UID returns the UID by which the runtime knows the pod. It stays the same for the life of the
// pod: a mirror pod may be deleted and created again while its static pod runs on.
func UID(pod *corev1.Pod) string {
	return cmp.Or(owner.StaticUID(pod.Annotations), string(pod.UID))
}

// Ends reports whether the deletion of a pod ends its containers. That of a mirror pod ends none.
func Ends(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && owner.StaticUID(pod.Annotations) == ""
}

// Pod returns the pod of a call. It reads the API server if the runtime is ahead of the cache, or
// if a name has come back with another UID. The pod may belong to the cache: it is read-only.
func (b *Base) Pod(ctx context.Context, p agentapi.Pod) (*corev1.Pod, error) {
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	for _, reader := range []client.Reader{b.Cache, b.Reader} {
		// Each read has its own object. Otherwise the answer of the API server would be decoded into
		// the object of the cache.
		pod := &corev1.Pod{}
		err := reader.Get(ctx, name, pod, client.UnsafeDisableDeepCopy)
		switch {
		case err == nil && IsUID(pod, p.UID):
			return pod, nil
		case err != nil && client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("read pod %s: %w", name, err)
		}
	}
	return nil, refusal.New(refusal.TryAgain, "pod %s with UID %s does not exist", name, p.UID)
}

// PodOf returns the part of a pod that the choice of pools needs.
func PodOf(pod *corev1.Pod) ipam.Pod {
	return ipam.Pod{Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations}
}

// FixedAddressOf returns the request of a pod's annotations for an address that stays with its
// name. It refuses a pod whose name does not come back: no pod would take the kept address over.
func FixedAddressOf(pod *corev1.Pod) (v1alpha1.FixedAddress, error) {
	asked, err := v1alpha1.ParseFixedAddress(pod.Annotations)
	if err != nil {
		return v1alpha1.FixedAddress{}, refusal.New(refusal.InvalidPod, "pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if asked.Retention == nil || keepsName(pod) {
		return asked, nil
	}
	whose := "no controller creates it again"
	if ref, ok := owner.Of(pod); ok {
		whose = fmt.Sprintf("its %s %s makes pods of new names", ref.Kind, ref.Name)
	}
	return v1alpha1.FixedAddress{}, refusal.New(refusal.InvalidPod,
		"pod %s/%s asks for a fixed address (annotation %s). Such an address is kept for the name of the pod, but %s: use a StatefulSet or a virtual machine, or remove the annotation",
		pod.Namespace, pod.Name, asked.Key, whose)
}

// RecordedRetention returns the retention for the lease of a living pod that is recorded again.
// isStatic reports whether the address is kept for the name of the pod. A wrong annotation counts as
// none: ADD has refused wrong annotations, so it was changed since.
func RecordedRetention(pod *corev1.Pod, isStatic bool) *v1alpha1.LeaseRetention {
	if !keepsName(pod) {
		return nil
	}
	if !isStatic {
		return &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}
	}
	asked, _ := FixedAddressOf(pod)
	return asked.Retention
}

func keepsName(pod *corev1.Pod) bool {
	who := Of(pod, agentapi.Attachment{}, "")
	return owner.KeepsName(&who)
}
