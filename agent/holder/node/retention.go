// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/holder/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// FixedAddressOf returns the request of a pod's annotations for an address that stays with its name.
// It refuses a pod whose name does not come back: no other pod would ever take the kept address
// over.
func FixedAddressOf(pod *corev1.Pod) (v1alpha1.FixedAddress, error) {
	asked, err := v1alpha1.ParseFixedAddress(pod.Annotations)
	if err != nil {
		return v1alpha1.FixedAddress{}, refusal.New(refusal.InvalidPod, "pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if asked.Retention == nil {
		return asked, nil
	}
	if keepsName(pod) {
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
