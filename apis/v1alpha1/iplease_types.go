package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LeaseState is the state of a lease. A free address has no lease.
//
// +kubebuilder:validation:Enum=Bound;Warm;Quarantined;Retained
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

// LeaseReason says why a lease is in its state, in one word in CamelCase: it is a
// label of metrics.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^([A-Z][A-Za-z]*)?$`
type LeaseReason string

// Reasons of Quarantined leases.
const (
	// ReasonConflict: somebody else answered for the address.
	ReasonConflict LeaseReason = "Conflict"
	// ReasonPodTerminating: the pod is Terminating past deletionTimestamp and extraGrace.
	ReasonPodTerminating LeaseReason = "PodTerminating"
	// ReasonPodDeleted: the pod was deleted, and no DEL of its node followed.
	ReasonPodDeleted LeaseReason = "PodDeleted"
	// ReasonPodGone: the recorded pod does not exist, and nobody saw it go.
	ReasonPodGone LeaseReason = "PodGone"
	// ReasonPodReplaced: a pod of that name exists with another UID.
	ReasonPodReplaced LeaseReason = "PodReplaced"
	// ReasonPodFinished: the pod Succeeded or Failed.
	ReasonPodFinished LeaseReason = "PodFinished"
	// ReasonNodeUnreachable: the holder's node is not Ready, and its pod is to go or gone.
	ReasonNodeUnreachable LeaseReason = "NodeUnreachable"
	// ReasonNodeGone: the holder's Node object does not exist.
	ReasonNodeGone LeaseReason = "NodeGone"
	// ReasonOutOfService: the holder's node carries the out-of-service taint.
	ReasonOutOfService LeaseReason = "OutOfService"
	// ReasonAgentGone: the node that kept the address Warm has no agent that works.
	ReasonAgentGone LeaseReason = "AgentGone"
	// ReasonUnverified: a take-over could not prove the previous holder fenced or silent.
	ReasonUnverified LeaseReason = "Unverified"
)

// Reasons of leases that stay as they are although their record is not whole.
const (
	// ReasonPoolGone: the pool does not exist any more.
	ReasonPoolGone LeaseReason = "PoolGone"
	// ReasonOutsidePool: the address is not one of the pool any more.
	ReasonOutsidePool LeaseReason = "OutsidePool"
	// ReasonNoHolder: the record does not tell whose the address is.
	ReasonNoHolder LeaseReason = "NoHolder"
	// ReasonStoreWentBack: the holder's token is greater than any that the API
	// server's store can give since it was restored, so nobody can fence it.
	ReasonStoreWentBack LeaseReason = "StoreWentBack"
)

// Holder is the pod interface that a lease is bound to.
type Holder struct {
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PodUID string `json:"podUID,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ContainerID string `json:"containerID,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`
	MAC string `json:"mac,omitempty"`
	// guarded is false where no guard program can enforce a fence (vfio, DPDK).
	// +optional
	Guarded bool `json:"guarded,omitempty"`
	// ownerKind and ownerName name the pod's controlling owner.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	OwnerKind string `json:"ownerKind,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=253
	OwnerName string `json:"ownerName,omitempty"`
}

// PreviousHolder is from whom the address was taken.
type PreviousHolder struct {
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Session string `json:"session,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	PodUID string `json:"podUID,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`
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
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`
	MAC string `json:"mac,omitempty"`
	// source of the evidence: probe, observer or guard.
	// +optional
	// +kubebuilder:validation:Enum=probe;observer;guard
	Source string `json:"source,omitempty"`
	// +optional
	FirstSeen metav1.Time `json:"firstSeen,omitempty"`
	// +optional
	LastSeen metav1.Time `json:"lastSeen,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count,omitempty"`
}

// RetentionPolicy says how long an address is kept for a StatefulSet pod.
//
// +kubebuilder:validation:Enum=WhileOwned;Forever;For
type RetentionPolicy string

const (
	// RetainWhileOwned: while start <= ordinal < start + replicas.
	RetainWhileOwned RetentionPolicy = "WhileOwned"
	// RetainForever: until a person deletes the lease.
	RetainForever RetentionPolicy = "Forever"
	// RetainFor: for duration after the pod's end, and longer while RetainWhileOwned would.
	RetainFor RetentionPolicy = "For"
)

// LeaseRetention is what the pod's annotations asked for when it got its
// address. It counts once the StatefulSet is gone; until then its template does.
//
// +kubebuilder:validation:XValidation:rule="has(self.duration) == (self.policy == 'For')",fieldPath=".duration",message="duration belongs to policy For, and to no other"
type LeaseRetention struct {
	Policy RetentionPolicy `json:"policy"`
	// duration for which the address is kept beyond the pod's end.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,6}([.][0-9]{1,6})?(ns|us|ms|s|m|h))+)$`
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// A lease is written thousands of times for once that somebody reads why the API
// server refuses it. What a pattern can say is no rule; what cannot change is looked
// at when the lease is made; and for each field that a rule reads the API server copies the
// schemas of all fields beside it, so the rule of IPLeaseSpec reads few in each state.

// IPLeaseSpec is all of a lease: there is no status, so that every transition is one write.
//
// +kubebuilder:validation:XValidation:rule=`self.state == 'Quarantined' ? self.?reason.orValue("").size() > 0 : (self.state == 'Retained' || self.?nodeName.orValue("").size() > 0) && (self.state == 'Warm' || (self.?holder.?__namespace__.hasValue() && self.?holder.?pod.hasValue()))`,messageExpression=`self.state == 'Quarantined' ? 'reason must be set in state Quarantined' : self.state != 'Retained' && self.?nodeName.orValue("").size() == 0 ? 'nodeName must be set in state ' + self.state : 'holder must name namespace and pod in state ' + self.state`
type IPLeaseSpec struct {
	// address in canonical text form (RFC 5952 for IPv6). Immutable, tied to the name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() ? self == oldSelf.value() : isIP(self) && ip.isCanonical(self)",optionalOldSelf=true,messageExpression="!isIP(self) ? 'address ' + self + ' is no address' : ip.isCanonical(self) ? 'address is immutable' : 'address ' + self + ' is not in canonical form (RFC 5952)'"
	Address string `json:"address"`
	// pool that the address was chosen from.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="pool is immutable"
	Pool string `json:"pool"`
	// parent interface on nodeName.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Parent string `json:"parent,omitempty"`
	// state of the lease.
	State LeaseState `json:"state"`
	// +optional
	Reason LeaseReason `json:"reason,omitempty"`
	// message for people.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// since is when the state began.
	// +optional
	Since metav1.Time `json:"since,omitempty"`
	// nodeName is the node of the holder, or of the verifier while Quarantined.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`
	// session is the Node UID and boot ID of the life that wrote the lease: "<node UID>/<boot ID>".
	// +optional
	// +kubebuilder:validation:MaxLength=128
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
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name == self.spec.address || !isIP(self.spec.address) || (self.spec.address.contains(':') ? (self.metadata.name.matches('^([a-z]([-a-z0-9]{0,29}[a-z0-9])?[.])?([0-9a-f]{4}-){7}[0-9a-f]{4}$') && ip(self.metadata.name.substring(self.metadata.name.size() - 39).replace('-', ':')) == ip(self.spec.address)) : (self.metadata.name.endsWith('.' + self.spec.address) && self.metadata.name.matches('^[a-z]([-a-z0-9]{0,29}[a-z0-9])?[.][0-9]+[.][0-9]+[.][0-9]+[.][0-9]+$')))",optionalOldSelf=true,fieldPath=".spec.address",messageExpression="'name and address must agree: the lease of address ' + self.spec.address + (self.spec.address.contains(':') ? ' is named after all its 32 digits, with - for :, or network. and these' : ' is named ' + self.spec.address + ' or network.' + self.spec.address)"
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.state`
// +kubebuilder:selectablefield:JSONPath=`.spec.pool`
// +kubebuilder:selectablefield:JSONPath=`.spec.holder.namespace`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.holder.namespace`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.holder.pod`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="MAC",type=string,priority=1,JSONPath=`.spec.holder.mac`
// +kubebuilder:printcolumn:name="Parent",type=string,priority=1,JSONPath=`.spec.parent`
// +kubebuilder:printcolumn:name="Since",type=date,priority=1,JSONPath=`.spec.since`
// +kubebuilder:printcolumn:name="Conflict",type=string,priority=1,JSONPath=`.spec.conflict.mac`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.spec.message`
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
