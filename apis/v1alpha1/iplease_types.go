// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LeaseState is the state of a lease. A free address has no lease.
//
// +kubebuilder:validation:Enum=Bound;Warm;Quarantined;Retained
type LeaseState string

const (
	// StateBound: the address is bound to holder.
	StateBound LeaseState = "Bound"
	// StateWarm: the address is verified, and nodeName keeps it ready.
	StateWarm LeaseState = "Warm"
	// StateQuarantined: the address is not handed out until its last holder is fenced, gone or proven
	// silent.
	StateQuarantined LeaseState = "Quarantined"
	// StateRetained: the address is retained for the StatefulSet pod that holder names, or with the
	// reason SandboxEnded for the next sandbox of the pod with holder.podUID.
	StateRetained LeaseState = "Retained"
)

// LeaseReason is the reason for the state of a lease: one word in CamelCase, because it is a label of
// metrics.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^([A-Z][A-Za-z]*)?$`
type LeaseReason string

// Reasons of Quarantined leases.
const (
	// ReasonConflict: another host uses the address.
	ReasonConflict LeaseReason = "Conflict"
	// ReasonPodTerminating: the pod is still Terminating at deletionTimestamp plus extraGrace.
	ReasonPodTerminating LeaseReason = "PodTerminating"
	// ReasonPodDeleted: the pod was deleted, but its node carried out no DEL.
	ReasonPodDeleted LeaseReason = "PodDeleted"
	// ReasonPodGone: the recorded pod does not exist, and the controller did not see its deletion.
	ReasonPodGone LeaseReason = "PodGone"
	// ReasonPodReplaced: a pod with the recorded name exists, and has another UID.
	ReasonPodReplaced LeaseReason = "PodReplaced"
	// ReasonPodFinished: the pod Succeeded or Failed.
	ReasonPodFinished LeaseReason = "PodFinished"
	// ReasonNodeUnreachable: the holder's node is not Ready, and its pod is Terminating or gone.
	ReasonNodeUnreachable LeaseReason = "NodeUnreachable"
	// ReasonNodeGone: the holder's Node object does not exist.
	ReasonNodeGone LeaseReason = "NodeGone"
	// ReasonOutOfService: the holder's node has the out-of-service taint.
	ReasonOutOfService LeaseReason = "OutOfService"
	// ReasonAgentGone: the node that kept the address Warm has no working agent.
	ReasonAgentGone LeaseReason = "AgentGone"
	// ReasonNodeRestarted: the holder's node has booted again. If the pod still lives, its next sandbox
	// gets the address.
	ReasonNodeRestarted LeaseReason = "NodeRestarted"
	// ReasonMigrated: the holder's virtual machine now runs in another pod.
	ReasonMigrated LeaseReason = "Migrated"
	// ReasonUnverified: a take-over did not prove that the previous holder is fenced or silent.
	ReasonUnverified LeaseReason = "Unverified"
	// ReasonMovingIn: the address is that of a record of another IPAM. A Move names it.
	ReasonMovingIn LeaseReason = "MovingIn"
)

// ReasonSandboxEnded is the reason of a Retained lease whose pod lives: its sandbox has ended, and its
// next sandbox gets the address. Such a lease is kept for holder.podUID, and ends with this pod.
// A Retained lease without this reason is kept for the name of a StatefulSet's pod.
const ReasonSandboxEnded LeaseReason = "SandboxEnded"

// Reasons of leases with an incomplete record. Such a lease stays as it is.
const (
	// ReasonPoolGone: the pool no longer exists.
	ReasonPoolGone LeaseReason = "PoolGone"
	// ReasonOutsidePool: the pool no longer has the address.
	ReasonOutsidePool LeaseReason = "OutsidePool"
	// ReasonNoHolder: the record names no holder.
	ReasonNoHolder LeaseReason = "NoHolder"
	// ReasonStoreWentBack: the API server's store was restored, and its tokens are now less than the
	// holder's token. Therefore no claim can fence the holder.
	ReasonStoreWentBack LeaseReason = "StoreWentBack"
)

// Holder is the pod interface that a lease is bound to.
type Holder struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
	// +kubebuilder:validation:MaxLength=63
	PodUID string `json:"podUID,omitempty"`
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
	// +kubebuilder:validation:MaxLength=128
	ContainerID string `json:"containerID,omitempty"`
	MAC         MAC    `json:"mac,omitempty"`
	// token is the fencing token. It is 0 while the write that gave it is the last one of the lease:
	// then the resourceVersion is the token.
	// +kubebuilder:validation:Minimum=0
	Token int64 `json:"token,omitempty"`
	// guarded is false if no guard program can enforce a fence (vfio, DPDK, sockets of a VF that skip it).
	Guarded bool `json:"guarded,omitempty"`
	// ownerGroup, ownerKind and ownerName name the pod's controlling owner. For a StatefulSet, an empty
	// ownerGroup means apps.
	// +kubebuilder:validation:MaxLength=253
	OwnerGroup string `json:"ownerGroup,omitempty"`
	// +kubebuilder:validation:MaxLength=63
	OwnerKind string `json:"ownerKind,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	OwnerName string `json:"ownerName,omitempty"`
}

// PreviousHolder is the holder from which the address was taken.
type PreviousHolder struct {
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// +kubebuilder:validation:MaxLength=128
	Session string `json:"session,omitempty"`
	// +kubebuilder:validation:MaxLength=63
	PodUID string `json:"podUID,omitempty"`
	MAC    MAC    `json:"mac,omitempty"`
	// token is the fencing token. The claim asks the holder with this token for its ack. If it is 0, the
	// claim asks no holder.
	// +kubebuilder:validation:Minimum=0
	Token   int64       `json:"token,omitempty"`
	Guarded bool        `json:"guarded,omitempty"`
	Reason  LeaseReason `json:"reason,omitempty"`
	Since   metav1.Time `json:"since,omitempty"`
}

// Conflict is the evidence of a second speaker.
type Conflict struct {
	MAC MAC `json:"mac,omitempty"`
	// source is the source of the evidence: probe, observer or guard.
	// +kubebuilder:validation:Enum=probe;observer;guard
	Source    string      `json:"source,omitempty"`
	FirstSeen metav1.Time `json:"firstSeen,omitempty"`
	LastSeen  metav1.Time `json:"lastSeen,omitempty"`
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count,omitempty"`
}

// RetentionPolicy is the time for which an address is retained for a StatefulSet pod.
//
// +kubebuilder:validation:Enum=WhileOwned;Forever;For;None
type RetentionPolicy string

const (
	// RetainWhileOwned: while start <= ordinal < start + replicas.
	RetainWhileOwned RetentionPolicy = "WhileOwned"
	// RetainForever: until a person deletes the lease.
	RetainForever RetentionPolicy = "Forever"
	// RetainFor: for duration after the pod's end, and longer if RetainWhileOwned is longer.
	RetainFor RetentionPolicy = "For"
	// RetainNone: the address is not kept for the name of the pod. It is free when the pod ends.
	RetainNone RetentionPolicy = "None"
)

// LeaseRetention is the retention in the pod's annotations at the time of ADD. It decides after the
// StatefulSet is gone. Until then the annotations of its template decide.
//
// +kubebuilder:validation:XValidation:rule="has(self.duration) == (self.policy == 'For')",fieldPath=".duration",message="duration belongs to policy For, and to no other"
type LeaseRetention struct {
	Policy RetentionPolicy `json:"policy"`
	// duration is the time for which the address is retained after the pod's end.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,6}([.][0-9]{1,6})?(ns|us|ms|s|m|h))+)$`
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// The rules of a lease are made for speed, because leases are written often. A pattern stands in place
// of a rule where it suffices. A field that cannot change is checked only when the lease is created. For
// each field that a rule reads, the API server copies the schemas of its neighbours, so the rule of
// IPLeaseSpec is one rule, which reads few fields in each state.

// IPLeaseSpec is the whole record of a lease. There is no status, so that every transition is one write.
//
// +kubebuilder:validation:XValidation:rule=`self.state == 'Quarantined' ? self.?reason.orValue("").size() > 0 : (self.state == 'Retained' || self.?nodeName.orValue("").size() > 0) && (self.state == 'Warm' || (self.?holder.?__namespace__.hasValue() && self.?holder.?pod.hasValue()))`,messageExpression=`self.state == 'Quarantined' ? 'reason must be set in state Quarantined' : self.state != 'Retained' && self.?nodeName.orValue("").size() == 0 ? 'nodeName must be set in state ' + self.state : 'holder must name namespace and pod in state ' + self.state`
type IPLeaseSpec struct {
	// address is the address in canonical text form (RFC 5952 for IPv6). It must fit the name.
	// Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() ? self == oldSelf.value() : isIP(self) && ip.isCanonical(self)",optionalOldSelf=true,messageExpression="!isIP(self) ? 'address ' + self + ' is not an IP address' : ip.isCanonical(self) ? 'address is immutable' : 'address ' + self + ' is not in canonical form (RFC 5952)'"
	Address string `json:"address"`
	// pool is the pool from which the address was chosen. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="pool is immutable"
	Pool string `json:"pool"`
	// parent is the parent interface on nodeName.
	// +kubebuilder:validation:MaxLength=15
	Parent string `json:"parent,omitempty"`
	// state is the state of the lease.
	State  LeaseState  `json:"state"`
	Reason LeaseReason `json:"reason,omitempty"`
	// message is a text for people.
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// since is the time at which the state began.
	Since metav1.Time `json:"since,omitempty"`
	// nodeName is the node of the holder, or of the verifier in state Quarantined.
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`
	// session is the session of the node that wrote the lease: "<node UID>/<boot ID>".
	// +kubebuilder:validation:MaxLength=128
	Session   string          `json:"session,omitempty"`
	Holder    *Holder         `json:"holder,omitempty"`
	Previous  *PreviousHolder `json:"previous,omitempty"`
	Conflict  *Conflict       `json:"conflict,omitempty"`
	Retention *LeaseRetention `json:"retention,omitempty"`
}

// IPLease records that one address is in use, with its holder and its state.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=fllease
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.matches('^([a-z]([-a-z0-9]{0,29}[a-z0-9])?[.])?([0-9]+([.][0-9]+){3}|([0-9a-f]{4}-){7}[0-9a-f]{4})$')",optionalOldSelf=true,fieldPath=".spec.address",messageExpression="'name ' + self.metadata.name + ' is neither an address nor a network, a dot and an address (IPv6 in full, with - for :)'"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name == self.spec.address || self.metadata.name.endsWith('.' + self.spec.address) || (self.metadata.name.size() > 38 && ip(self.metadata.name.substring(self.metadata.name.size() - 39).replace('-', ':')) == ip(self.spec.address))",optionalOldSelf=true,fieldPath=".spec.address",messageExpression="'name ' + self.metadata.name + ' is not that of address ' + self.spec.address"
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
