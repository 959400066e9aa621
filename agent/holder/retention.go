// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// fixedAddressOf returns the request of a pod's annotations for an address that stays with its name.
// It refuses a pod whose name does not come back: no other pod would ever take the kept address
// over.
func fixedAddressOf(pod *corev1.Pod) (v1alpha1.FixedAddress, error) {
	asked, err := v1alpha1.ParseFixedAddress(pod.Annotations)
	if err != nil {
		return v1alpha1.FixedAddress{}, refusal.New(refusal.InvalidPod, "pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if asked.Retention == nil {
		return asked, nil
	}
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.Kind == "StatefulSet" {
		return asked, nil
	}
	whose := "no controller creates it again"
	if owner != nil {
		whose = fmt.Sprintf("its %s %s makes pods of new names", owner.Kind, owner.Name)
	}
	return v1alpha1.FixedAddress{}, refusal.New(refusal.InvalidPod,
		"pod %s/%s asks for a fixed address (annotation %s). Such an address is kept for the name of the pod, but %s: use a StatefulSet, or remove the annotation",
		pod.Namespace, pod.Name, asked.Key, whose)
}

// RecordedRetention returns the retention for the lease of a living pod that is recorded again.
// isStatic reports whether the address is kept for the name of the pod. A wrong annotation counts as
// none: ADD has refused wrong annotations, so it was changed since.
func RecordedRetention(pod *corev1.Pod, isStatic bool) *v1alpha1.LeaseRetention {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "StatefulSet" {
		return nil
	}
	if !isStatic {
		return &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}
	}
	asked, _ := fixedAddressOf(pod)
	return asked.Retention
}
