// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// MaxHintLeases is the greatest number of leases that each of the lists leases and changed of a hint names.
	MaxHintLeases = 512
	// MaxHintLeft is the greatest number of leases that the list left of a hint names.
	MaxHintLeft = 64
)

// LeaseVersion is a version of a lease.
type LeaseVersion struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=71
	Name string `json:"name"`
	// version is the resourceVersion of the lease, or of its deletion.
	// +kubebuilder:validation:MaxLength=20
	Version string `json:"version"`
}

// LeaseHintSpec is the question of a node's agent. Only the agent writes it.
type LeaseHintSpec struct {
	// start is a random ID. A new one asks the controller for all leases of the node.
	// +kubebuilder:validation:MaxLength=64
	Start string `json:"start,omitempty"`
}

// LeaseHintStatus names leases that the agent should read. Only the controller writes it. A hint proves
// nothing: the agent reads each lease by its name.
type LeaseHintStatus struct {
	// start is the spec.start that leases and all answer.
	// +kubebuilder:validation:MaxLength=64
	Start string `json:"start,omitempty"`
	// leases are the leases of the node at the time of the answer. It is empty if all is true.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Leases []LeaseVersion `json:"leases,omitempty"`
	// all is true if the node has more leases than leases can name, so the agent lists them itself.
	All bool `json:"all,omitempty"`
	// changed are the Quarantined leases of the node, and the leases that were taken from it and whose record
	// still names it as the previous holder's node. If they are too many, the Quarantined ones without a previous
	// holder are left out first, and then those that were written last.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	Changed []LeaseVersion `json:"changed,omitempty"`
	// leader is a random ID of the controller that leads. A new one did not see the changes before it, so the agent
	// asks again.
	// +kubebuilder:validation:MaxLength=64
	Leader string `json:"leader,omitempty"`
	// left are the last leases that left the node, or that another than its agent deleted or edited by force, oldest
	// first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Left []LeaseVersion `json:"left,omitempty"`
}

// LeaseHint tells the agent of the node of its name which leases others have changed, so that the agent
// need not watch the leases. A watch by name costs the API server nothing when a lease is written.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=flhint
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Asked",type=string,JSONPath=`.spec.start`
// +kubebuilder:printcolumn:name="Answered",type=string,JSONPath=`.status.start`
// +kubebuilder:printcolumn:name="Changed",type=string,JSONPath=`.status.changed[*].name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LeaseHint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   LeaseHintSpec   `json:"spec,omitempty"`
	Status LeaseHintStatus `json:"status,omitempty"`
}

// LeaseHintList is a list of hints.
//
// +kubebuilder:object:root=true
type LeaseHintList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LeaseHint `json:"items"`
}
