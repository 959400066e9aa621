package holder

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// retentionOf reads for how long a pod's annotations ask to keep its addresses,
// nil where they ask for nothing. A pod whose name does not come back is refused:
// nobody would ever take the kept address over.
func retentionOf(pod *corev1.Pod) (*v1alpha1.LeaseRetention, error) {
	asked, err := v1alpha1.ParseRetention(pod.Annotations)
	if err != nil {
		return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, "pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if asked == nil {
		return nil, nil
	}
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.Kind == "StatefulSet" {
		return asked, nil
	}
	whose := "nobody makes it again"
	if owner != nil {
		whose = fmt.Sprintf("its %s %s makes pods of new names", owner.Kind, owner.Name)
	}
	return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig,
		"pod %s/%s asks for a fixed address (annotation %s%s or %s), which belongs to a name, but %s: use a StatefulSet, or remove the annotation",
		pod.Namespace, pod.Name, v1alpha1.AnnotationPrefix, v1alpha1.AnnotationStaticIP, v1alpha1.AnnotationIPRetention, whose)
}

// recordedRetention is what a lease of the pod records. What cannot be kept was
// refused at ADD, and annotations may have been changed since.
func recordedRetention(pod *corev1.Pod) *v1alpha1.LeaseRetention {
	asked, err := retentionOf(pod)
	if err != nil {
		return nil
	}
	return asked
}
