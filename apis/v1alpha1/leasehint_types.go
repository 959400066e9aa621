// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// MaxHintLeases is the greatest number of leases that each of the lists leases and changed of a hint names.
	MaxHintLeases = 512
	// MaxHintLeft is the greatest number of leases that the list left of a hint names.
	MaxHintLeft = 64
	// MaxHintWaits is the greatest number of pools that the list waits of a hint names.
	MaxHintWaits = 64
	// MaxHintWanted is the greatest number of leases that the list wanted of a hint names.
	MaxHintWanted = 64
	// MaxHintFree is the greatest number of addresses that the list free of a hint names.
	MaxHintFree = 128
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

// PoolWait is a full pool for an address of which ADDs of a node wait.
type PoolWait struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool"`
	// addresses are those of the pool of which the ADDs want one. Empty means any address.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=45
	Addresses []string `json:"addresses,omitempty"`
	// since is when the first of these ADDs arrived.
	Since metav1.MicroTime `json:"since"`
}

// FreeAddress is an address of a pool that has no lease.
type FreeAddress struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pool string `json:"pool"`
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`
	// version is the resourceVersion of the lease that ended. It is empty if the address was free before nodes
	// waited for the pool.
	// +kubebuilder:validation:MaxLength=20
	Version string `json:"version,omitempty"`
}

// LeaseHintSpec are the questions of a node's agent. Only the agent writes it.
type LeaseHintSpec struct {
	// start is a random ID. A new one asks the controller for all leases of the node.
	// +kubebuilder:validation:MaxLength=64
	Start string `json:"start,omitempty"`
	// waits are the full pools for which ADDs of the node wait. It asks the controller for addresses that come
	// free. If they are too many, the pools with the longest waits are named.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Waits []PoolWait `json:"waits,omitempty"`
	// round is a random ID. A new one is written with each change of waits, and about every 40 s while there are
	// any.
	// +kubebuilder:validation:MaxLength=64
	Round string `json:"round,omitempty"`
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
	// round is the spec.round whose waits the controller knows.
	// +kubebuilder:validation:MaxLength=64
	Round string `json:"round,omitempty"`
	// free are addresses without a lease that an ADD of this node may try. Each address is offered to few of the
	// nodes that wait for its pool, and to more of them if it stays free.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Free []FreeAddress `json:"free,omitempty"`
	// wanted are Warm leases of the node for whose very addresses ADDs of other nodes wait. The agent releases them.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Wanted []LeaseVersion `json:"wanted,omitempty"`
}

// LeaseHint tells the agent of the node of its name which leases others have changed, and which addresses came
// free for its ADDs that wait, so that the agent need not watch the leases. A watch by name costs the API server
// nothing when a lease is written.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=flhint
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Asked",type=string,JSONPath=`.spec.start`
// +kubebuilder:printcolumn:name="Answered",type=string,JSONPath=`.status.start`
// +kubebuilder:printcolumn:name="Changed",type=string,JSONPath=`.status.changed[*].name`
// +kubebuilder:printcolumn:name="Waits",type=string,JSONPath=`.spec.waits[*].pool`
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
