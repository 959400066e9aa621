// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// retentionOf returns the retention that a pod's annotations ask for, or nil if they ask for none.
// It refuses a pod whose name does not come back: no other pod would ever take the kept address
// over.
func retentionOf(pod *corev1.Pod) (*v1alpha1.LeaseRetention, error) {
	asked, err := v1alpha1.ParseRetention(pod.Annotations)
	if err != nil {
		return nil, refusal.New(refusal.InvalidPod, "pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if asked == nil {
		return nil, nil
	}
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.Kind == "StatefulSet" {
		return asked, nil
	}
	whose := "no controller creates it again"
	if owner != nil {
		whose = fmt.Sprintf("its %s %s makes pods of new names", owner.Kind, owner.Name)
	}
	return nil, refusal.New(refusal.InvalidPod,
		"pod %s/%s asks for a fixed address (annotation %s%s or %s). Such an address is kept for the name of the pod, but %s: use a StatefulSet, or remove the annotation",
		pod.Namespace, pod.Name, v1alpha1.AnnotationPrefix, v1alpha1.AnnotationStaticIP, v1alpha1.AnnotationIPRetention, whose)
}

// RecordedRetention returns the retention for the pod's lease. It returns nil for a wrong
// annotation: ADD has refused wrong annotations, so it was changed since.
func RecordedRetention(pod *corev1.Pod) *v1alpha1.LeaseRetention {
	asked, err := retentionOf(pod)
	if err != nil {
		return nil
	}
	return asked
}
