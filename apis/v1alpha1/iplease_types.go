package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LeaseState is the state of a lease. A free address has no lease.
type LeaseState string

const (
	// StateBound: the address belongs to holder.
	StateBound LeaseState = "Bound"
	// StateWarm: verified and kept ready by nodeName.
	StateWarm LeaseState = "Warm"
	// StateQuarantined: set aside until its last holder is fenced, gone or proven silent.
	StateQuarantined LeaseState = "Quarantined"
	// StateRetained: kept for the StatefulSet pod named in holder.
	StateRetained LeaseState = "Retained"
)

// LeaseReason says why a lease is in its state.
type LeaseReason string

// Reasons of Quarantined leases.
const (
	// ReasonConflict: somebody else answered for the address.
	ReasonConflict LeaseReason = "Conflict"
	// ReasonPodTerminating: the pod is Terminating past deletionTimestamp and extraGrace.
	ReasonPodTerminating LeaseReason = "PodTerminating"
	// ReasonPodGone: the recorded pod does not exist.
	ReasonPodGone LeaseReason = "PodGone"
	// ReasonPodReplaced: a pod of that name exists with another UID.
	ReasonPodReplaced LeaseReason = "PodReplaced"
	// ReasonPodFinished: the pod Succeeded or Failed.
	ReasonPodFinished LeaseReason = "PodFinished"
	// ReasonNodeGone: the holder's Node object does not exist.
	ReasonNodeGone LeaseReason = "NodeGone"
	// ReasonOutOfService: the holder's node carries the out-of-service taint.
	ReasonOutOfService LeaseReason = "OutOfService"
	// ReasonUnverified: a take-over could not prove the previous holder fenced or silent.
	ReasonUnverified LeaseReason = "Unverified"
)

// Holder is the pod interface that a lease is bound to.
type Holder struct {
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Pod string `json:"pod,omitempty"`
	// +optional
	PodUID string `json:"podUID,omitempty"`
	// +optional
	Interface string `json:"interface,omitempty"`
	// +optional
	ContainerID string `json:"containerID,omitempty"`
	// +optional
	MAC string `json:"mac,omitempty"`
	// guarded is false where no guard program can enforce a fence (vfio, DPDK).
	// +optional
	Guarded bool `json:"guarded,omitempty"`
	// ownerKind and ownerName name the pod's controlling owner.
	// +optional
	OwnerKind string `json:"ownerKind,omitempty"`
	// +optional
	OwnerName string `json:"ownerName,omitempty"`
}

// PreviousHolder is from whom the address was taken.
type PreviousHolder struct {
	// +optional
	Node string `json:"node,omitempty"`
	// +optional
	Session string `json:"session,omitempty"`
	// +optional
	PodUID string `json:"podUID,omitempty"`
	// +optional
	MAC string `json:"mac,omitempty"`
	// +optional
	Guarded bool `json:"guarded,omitempty"`
	// +optional
	Reason LeaseReason `json:"reason,omitempty"`
	// +optional
	Since metav1.Time `json:"since,omitempty"`
}

// Conflict tells of a second speaker.
type Conflict struct {
	// +optional
	MAC string `json:"mac,omitempty"`
	// source of the evidence: probe, observer or guard.
	// +optional
	Source string `json:"source,omitempty"`
	// +optional
	FirstSeen metav1.Time `json:"firstSeen,omitempty"`
	// +optional
	LastSeen metav1.Time `json:"lastSeen,omitempty"`
	// +optional
	Count int64 `json:"count,omitempty"`
}

// RetentionPolicy says how long an address is kept for a StatefulSet pod.
type RetentionPolicy string

const (
	// RetainWhileOwned: while start <= ordinal < start + replicas.
	RetainWhileOwned RetentionPolicy = "WhileOwned"
	// RetainForever: until a person deletes the lease.
	RetainForever RetentionPolicy = "Forever"
	// RetainFor: until the time in until.
	RetainFor RetentionPolicy = "For"
)

// LeaseRetention is the retention of a Retained lease.
type LeaseRetention struct {
	// +optional
	Policy RetentionPolicy `json:"policy,omitempty"`
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// IPLeaseSpec is all of a lease: there is no status, so that every transition is one write.
type IPLeaseSpec struct {
	// address in canonical text form (RFC 5952 for IPv6). Immutable, tied to the name.
	Address string `json:"address"`
	// pool that the address was chosen from.
	Pool string `json:"pool"`
	// parent interface on nodeName.
	// +optional
	Parent string `json:"parent,omitempty"`
	// state of the lease.
	State LeaseState `json:"state"`
	// +optional
	Reason LeaseReason `json:"reason,omitempty"`
	// message for people.
	// +optional
	Message string `json:"message,omitempty"`
	// since is when the state began.
	// +optional
	Since metav1.Time `json:"since,omitempty"`
	// nodeName is the node of the holder, or of the verifier while Quarantined.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// session is the Node UID and boot ID of the life that wrote the lease: "<node UID>/<boot ID>".
	// +optional
	Session string `json:"session,omitempty"`
	// +optional
	Holder *Holder `json:"holder,omitempty"`
	// +optional
	Previous *PreviousHolder `json:"previous,omitempty"`
	// +optional
	Conflict *Conflict `json:"conflict,omitempty"`
	// +optional
	Retention *LeaseRetention `json:"retention,omitempty"`
}

// IPLease is the record that one address is in use, by whom, in which state.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=fllease
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.state`
// +kubebuilder:selectablefield:JSONPath=`.spec.pool`
// +kubebuilder:selectablefield:JSONPath=`.spec.holder.namespace`
type IPLease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPLeaseSpec `json:"spec"`
}

// IPLeaseList is a list of leases.
//
// +kubebuilder:object:root=true
type IPLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPLease `json:"items"`
}
