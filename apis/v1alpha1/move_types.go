// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"encoding/json"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxMoveRecords is the greatest number of records of a Move. With all fields of the greatest length, the
// object stays below the limit of etcd, 1.5 MiB.
const MaxMoveRecords = 1024

// MoveSource is an IPAM whose records a Move has.
//
// +kubebuilder:validation:Enum=whereabouts;host-local;spiderpool
type MoveSource string

// The other IPAMs.
const (
	MoveWhereabouts MoveSource = "whereabouts"
	MoveHostLocal   MoveSource = "host-local"
	MoveSpiderpool  MoveSource = "spiderpool"
)

// MoveStep is the progress of a move. Kubectl fenceline move-in writes it.
//
// +kubebuilder:validation:Enum=Freeze;Adopt;Open;Back
type MoveStep string

const (
	// MoveFreeze: the old IPAM is being frozen, at the start or on the way back. The controller makes no lease.
	MoveFreeze MoveStep = "Freeze"
	// MoveAdopt: the old IPAM gives no address of the pools any more. The controller makes a lease for each
	// record, and the agents adopt the pods.
	MoveAdopt MoveStep = "Adopt"
	// MoveOpen: the pools are being opened, and the definition is being switched. Otherwise as MoveAdopt.
	MoveOpen MoveStep = "Open"
	// MoveBack: the move is being undone, or the network moves out. The controller makes no lease any more. It
	// deletes the holds, and has the agents give the pods of the records back to the other IPAM. Both
	// need disabled pools, so that no address is free in both.
	MoveBack MoveStep = "Back"
)

// MoveRecord is a record of the old IPAM: one address, and its pod if there is one. Every text of it is only
// a claim: an agent adopts a pod if the record, the pod and the interface on the node agree.
type MoveRecord struct {
	// address is the address in canonical text form (RFC 5952 for IPv6).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",messageExpression="self + ' is not an IP address in canonical form (RFC 5952)'"
	Address string `json:"address"`
	// node is the node of the pod.
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// namespace, pod and podUID name the pod. A record without podUID names no pod, and its address is held.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
	// +kubebuilder:validation:MaxLength=63
	PodUID string `json:"podUID,omitempty"`
	// interface is the interface in the pod. If it is empty, the address decides.
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
	// containerID is the ID of the pod's sandbox, as the old IPAM recorded it. If it is empty, the agent makes
	// an ID of its own.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^([a-zA-Z0-9][a-zA-Z0-9_.-]*)?$`
	ContainerID string `json:"containerID,omitempty"`
	// mac is the MAC of the interface, if the old IPAM or the pod's network-status has it.
	MAC MAC `json:"mac,omitempty"`
	// record names the record of the old IPAM for people.
	// +kubebuilder:validation:MaxLength=128
	Record string `json:"record,omitempty"`
	// hold is why the pod cannot be adopted or given back. If it is set, the address is only held.
	// +kubebuilder:validation:MaxLength=160
	Hold string `json:"hold,omitempty"`
}

// AdoptedSandbox returns the container ID of an adopted pod's sandbox: that of the record, or one that is made of the
// pod's UID, so that each try has the same.
func AdoptedSandbox(containerID, podUID string) string { return cmp.Or(containerID, "adopted-"+podUID) }

// Names reports whether a record is about the sandbox of a holder. A later sandbox of the pod asked Fenceline for its
// address, so the old IPAM may have none for it.
func (r *MoveRecord) Names(h *Holder) bool {
	return h != nil && r.PodUID != "" && r.PodUID == h.PodUID && h.ContainerID == AdoptedSandbox(r.ContainerID, r.PodUID)
}

// GoesBack reports whether the sandbox of a holder is given back to the old IPAM when the move goes back.
func (r *MoveRecord) GoesBack(h *Holder) bool { return r.Hold == "" && r.Names(h) }

// MoveDefinition is a NetworkAttachmentDefinition of a move, as it was before.
type MoveDefinition struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// config is spec.config of the definition for the old IPAM, byte by byte.
	// +kubebuilder:validation:MaxLength=16384
	Config string `json:"config"`
}

// SameConfig reports whether two configurations are equal as values, since programs write the text of JSON anew.
func SameConfig(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// MoveSpec is one network that moves from another IPAM to Fenceline, or out to it.
//
// +kubebuilder:validation:XValidation:rule="self.from == oldSelf.from",fieldPath=".from",message="from is immutable"
// +kubebuilder:validation:XValidation:rule="self.network == oldSelf.network",fieldPath=".network",message="network is immutable"
// +kubebuilder:validation:XValidation:rule="has(self.out) == has(oldSelf.out)",fieldPath=".out",message="out is immutable"
type MoveSpec struct {
	// from is the other IPAM. Immutable.
	From MoveSource `json:"from"`
	// out: the network moves from Fenceline to the other IPAM. It goes the way back of a move in: definitions and
	// records are those that the other IPAM is to have. Immutable.
	Out bool `json:"out,omitempty"`
	// network is the network that moves: "<namespace>/<name>" of its NetworkAttachmentDefinition. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Network string `json:"network"`
	// pools are the pools that get the addresses. A record belongs to the first pool with its address.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Pools []string `json:"pools"`
	// holder names who moves the network: a person, and the machine of the command. The command of another
	// holder is refused.
	// +kubebuilder:validation:MaxLength=253
	Holder string `json:"holder,omitempty"`
	// definitions are those of the network, and of other networks with its addresses.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Definitions []MoveDefinition `json:"definitions,omitempty"`
	// step is the progress of the move.
	Step MoveStep `json:"step"`
	// records are the addresses that the old IPAM has given.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Records []MoveRecord `json:"records,omitempty"`
}

// MoveState is what has become of an address of a Move.
//
// +kubebuilder:validation:Enum=Held;Adopted;Conflict;Ended
type MoveState string

const (
	// MoveHeld: the lease is Quarantined with the reason MovingIn. The reason of the address says why the pod
	// is not adopted.
	MoveHeld MoveState = "Held"
	// MoveAdopted: the lease is Bound to the pod of the record.
	MoveAdopted MoveState = "Adopted"
	// MoveConflict: the address has another lease or another speaker, or no pool of the move has it, or two
	// records name it.
	MoveConflict MoveState = "Conflict"
	// MoveEnded: the lease that was made for the record has ended. No other one is made for it.
	MoveEnded MoveState = "Ended"
)

// MoveAddress is the state of one address of a Move.
type MoveAddress struct {
	// +kubebuilder:validation:MaxLength=39
	Address string `json:"address"`
	// podUID is that of the record.
	//
	// +kubebuilder:validation:MaxLength=36
	PodUID string    `json:"podUID,omitempty"`
	State  MoveState `json:"state"`
	// reason is a text for people, cut to 200 characters.
	// +kubebuilder:validation:MaxLength=200
	Reason string `json:"reason,omitempty"`
}

// MoveStatus is what has become of the records. Only the controller writes it.
type MoveStatus struct {
	// observedGeneration of the spec that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// adopted, held, conflicts and ended count the addresses in each state.
	Adopted   int64 `json:"adopted,omitempty"`
	Held      int64 `json:"held,omitempty"`
	Conflicts int64 `json:"conflicts,omitempty"`
	Ended     int64 `json:"ended,omitempty"`
	// addresses has each address of the records once, in their order.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Addresses []MoveAddress `json:"addresses,omitempty"`
	// conditions: Reverted.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionReverted of a Move: others have undone a part of it, so two IPAMs may give its addresses, or its pods do not
// start. The addresses that have leases stay guarded.
const ConditionReverted = "Reverted"

// Reasons of ConditionReverted.
const (
	// ReasonDefinitionReverted: a definition asks the IPAM from which the network moves.
	ReasonDefinitionReverted = "DefinitionReverted"
	// ReasonFreezeRemoved: the SpiderReservedIPs of the move lack addresses of its pools.
	ReasonFreezeRemoved = "FreezeRemoved"
	// ReasonNewRecord: whereabouts has given addresses of the pools since the start.
	ReasonNewRecord = "NewRecord"
)

// MoveReservations returns the names of the SpiderReservedIPs of a move, for IPv4 and for IPv6.
func MoveReservations(move string) []string {
	return []string{"fenceline-" + move + "-v4", "fenceline-" + move + "-v6"}
}

// Move is the stored object of a move of one network from another IPAM to Fenceline, or out to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=flmove
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name is longer than 63 characters, and the leases of the move have it in a label"
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.spec.from`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.spec.step`
// +kubebuilder:printcolumn:name="Adopted",type=integer,JSONPath=`.status.adopted`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.held`
// +kubebuilder:printcolumn:name="Conflicts",type=integer,JSONPath=`.status.conflicts`
// +kubebuilder:printcolumn:name="Reverted",type=string,JSONPath=`.status.conditions[?(@.type=="Reverted")].reason`
// +kubebuilder:printcolumn:name="Holder",type=string,priority=1,JSONPath=`.spec.holder`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Move struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MoveSpec   `json:"spec"`
	Status MoveStatus `json:"status,omitempty"`
}

// MoveList is a list of moves.
//
// +kubebuilder:object:root=true
type MoveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Move `json:"items"`
}
