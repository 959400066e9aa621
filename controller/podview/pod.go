// SPDX-License-Identifier: Apache-2.0

// Package podview defines a pod type with only the fields that the controller reads. In the whole
// type, the empty fields alone take more than 1 kB of memory for each pod in the cache.
//
// +kubebuilder:object:generate=true
package podview

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// Pod is a v1 Pod with only the fields that a decision reads. Use it for reads, for deletions and as
// the target of patches. Never send it to the API server in an update.
//
// +kubebuilder:object:root=true
type Pod struct {
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec Spec `json:"spec,omitempty"`
	// Status is nil in the cache, except for agents and pods that are finished. Read it by StatusOrEmpty.
	Status *Status `json:"status,omitempty"`
}

// GetObjectKind implements runtime.Object. The scheme has the kind.
func (*Pod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// StatusOrEmpty returns the status, which is empty if the pod has none.
func (p *Pod) StatusOrEmpty() Status { return ptr.Deref(p.Status, Status{}) }

// IsFinished reports whether no container of the pod will run again.
func (p *Pod) IsFinished() bool {
	phase := p.StatusOrEmpty().Phase
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// LastEnd returns the latest end of a container. It is zero if none has ended.
func (p *Pod) LastEnd() (at time.Time) {
	s := p.StatusOrEmpty()
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	return at
}

// Spec is the read part of corev1.PodSpec.
type Spec struct {
	NodeName                      string `json:"nodeName,omitempty"`
	HostNetwork                   bool   `json:"hostNetwork,omitempty"`
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// Status is the read part of corev1.PodStatus.
type Status struct {
	Phase      corev1.PodPhase       `json:"phase,omitempty"`
	Conditions []corev1.PodCondition `json:"conditions,omitempty"`

	InitContainerStatuses      []corev1.ContainerStatus `json:"initContainerStatuses,omitempty"`
	ContainerStatuses          []corev1.ContainerStatus `json:"containerStatuses,omitempty"`
	EphemeralContainerStatuses []corev1.ContainerStatus `json:"ephemeralContainerStatuses,omitempty"`
}

// PodList is a list of pods.
//
// +kubebuilder:object:root=true
type PodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Pod `json:"items"`
}
