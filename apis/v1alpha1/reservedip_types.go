// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReservedIPSpec lists the addresses that no pool hands out, or only to the one for whom they are kept.
//
// +kubebuilder:validation:XValidation:rule="!has(self.network) || has(self.__for__) || has(self.virtual)",fieldPath=".network",message="network is only for addresses that are kept for somebody: name whom in for or virtual"
// +kubebuilder:validation:XValidation:rule="!has(self.__for__) || !has(self.virtual)",fieldPath=".virtual",message="for and virtual exclude each other: make two reservations"
// +kubebuilder:validation:XValidation:rule="!has(self.virtual) && !(has(self.__for__) && has(self.__for__.mac)) || self.ips.size() <= 16 && self.ips.all(a, !a.contains('-') && !a.contains('/'))",fieldPath=".ips",message="virtual addresses, and those of a machine, are single addresses, at most 16"
type ReservedIPSpec struct {
	// ipVersion is 4 or 6; optional, checked against ips.
	//
	// +kubebuilder:validation:Enum=4;6
	IPVersion *int64 `json:"ipVersion,omitempty"`
	// ips lists ranges "first-last", single addresses and CIDRs, of either IP version. They are
	// reserved on every network.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4096
	IPs []IPRange `json:"ips"`
	// for names whom the addresses are kept for. Nobody else gets one of them, and the one who is named gets
	// it before any other address of the pool. Without it, nobody gets them.
	For *ReservedFor `json:"for,omitempty"`
	// virtual makes the addresses virtual ones: no pod gets them, and the pods that it selects may speak for
	// them, one at a time.
	Virtual *ReservedVirtual `json:"virtual,omitempty"`
	// network is that of the pools (spec.network) that hand the addresses out to the one in for, or whose pods
	// speak for virtual addresses. Empty means the pools without a network.
	//
	// +kubebuilder:validation:MaxLength=63
	Network string `json:"network,omitempty"`
}

// ReservedFor names a pod, the pods of a StatefulSet, a virtual machine, all pods of a namespace, or a machine that is no
// pod.
//
// +kubebuilder:validation:XValidation:rule="[has(self.pod), has(self.statefulSet), has(self.virtualMachine), has(self.mac)].filter(x, x).size() <= 1",message="for names more than one: keep pod, statefulSet, virtualMachine or mac"
// +kubebuilder:validation:XValidation:rule="has(self.__namespace__) != has(self.mac)",message="for needs namespace, or mac alone for a machine that is no pod"
type ReservedFor struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// pod is the name of a pod. It gets one of the addresses of each family.
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
	// statefulSet is the name of a StatefulSet. Its ordinal n gets the nth address of each family, in the
	// order of ips, counted from 0.
	// +kubebuilder:validation:MaxLength=253
	StatefulSet string `json:"statefulSet,omitempty"`
	// virtualMachine is the name of a virtual machine of KubeVirt. It gets one of the addresses of each family.
	// +kubebuilder:validation:MaxLength=253
	VirtualMachine string `json:"virtualMachine,omitempty"`
	// mac is the MAC of a machine that is no pod, in lower case, such as 02:00:00:00:00:01. No pod gets the
	// addresses, and another MAC that uses one of them is a conflict.
	//
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$')",messageExpression="'mac: ' + self + ' is not the MAC of a host in lower case, such as 02:00:00:00:00:01'"
	MAC string `json:"mac,omitempty"`
}

// ReservedVirtual selects the pods that may speak for virtual addresses, such as those of keepalived.
type ReservedVirtual struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// matchLabels are labels that a pod of the namespace must have, all of them.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	MatchLabels map[string]string `json:"matchLabels"`
	// vrrpID is the virtual router ID of VRRP. With it, the pods may send VRRP, and use its MAC
	// (00:00:5e:00:01:ID, for IPv6 00:00:5e:00:02:ID) beside their own.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	VRRPID *int64 `json:"vrrpID,omitempty"`
	// exclusive makes one pod at a time speak for an address: the one that announced it last and whose agent has
	// written that into status.speakers. A claim mutes the pod before it for this address. While the API server is
	// away, no other pod gets the turn.
	Exclusive bool `json:"exclusive,omitempty"`
}

// IsNamespace reports whether all pods of the namespace share the addresses.
func (f ReservedFor) IsNamespace() bool { return f.Pod+f.StatefulSet+f.VirtualMachine+f.MAC == "" }

// Machine returns the MAC of the machine for which the addresses are kept, or "".
func (r *ReservedIP) Machine() MAC {
	if r.Spec.For == nil {
		return ""
	}
	return r.Spec.For.MAC
}

// String names the one for people: "pod shop/web-0".
func (f ReservedFor) String() string {
	if f.MAC != "" {
		return "the machine with MAC " + f.MAC
	}
	for kind, name := range map[string]string{"pod": f.Pod, "StatefulSet": f.StatefulSet, "virtual machine": f.VirtualMachine} {
		if name != "" {
			return kind + " " + f.Namespace + "/" + name
		}
	}
	return "namespace " + f.Namespace
}

// ReservedIPStatus is the status of a ReservedIP. The controller writes it, and agents write speakers.
type ReservedIPStatus struct {
	// observedGeneration of the spec that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// inUse is the number of reserved addresses that still have a lease.
	InUse int64 `json:"inUse,omitempty"`
	// speakers has the last known speaker of each virtual address. The agent of its node writes it. Of the
	// addresses of a machine, it has the last host that used one and was not the machine; an agent that heard it
	// writes it.
	//
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=16
	Speakers []Speaker `json:"speakers,omitempty"`
	// conditions: Ready, InUse, Contested, SubjectMissing, Conflict.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Speaker is the pod that speaks for a virtual address, or a host without a pod that uses the address of a machine.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.token) || has(self.token) && self.token >= oldSelf.token",fieldPath=".token",message="token never falls: an older claim would win"
type Speaker struct {
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address"`
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// mac is that of its frames.
	// +kubebuilder:validation:MaxLength=17
	MAC MAC `json:"mac"`
	// since is the time of the first frame that the agent heard.
	Since metav1.MicroTime `json:"since"`
	// token of the claim by which an exclusive address was taken. Greater is newer.
	//
	// +kubebuilder:validation:Minimum=1
	Token int64 `json:"token,omitempty"`
	// idle: the pod has removed the exclusive address from its interfaces. Another pod that has it there gets the
	// turn, also if it announced it long ago.
	Idle bool `json:"idle,omitempty"`
}

// ConditionInUse of a ReservedIP: some of its addresses have a lease. The reservation takes effect for
// each of them when its lease ends.
const ConditionInUse = "InUse"

// Conditions of a ReservedIP with spec.for or spec.virtual.
const (
	// ConditionContested: another ReservedIP has one of its addresses. Nobody gets such an address.
	ConditionContested = "Contested"
	// ConditionSubjectMissing: the one for whom the addresses are kept does not exist, or no pod may speak for them.
	ConditionSubjectMissing = "SubjectMissing"
	// ConditionConflict: a host that is not the machine uses one of its addresses.
	ConditionConflict = "Conflict"
)

// ReservedIP keeps addresses back from every pool, or keeps them for somebody.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=flreserved
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.ipVersion) || self.spec.ips.all(a, a.contains(':') == (self.spec.ipVersion == 6))",fieldPath=".spec.ips",messageExpression="'ips: ' + self.spec.ips.filter(a, a.contains(':') != (self.spec.ipVersion == 6))[0] + ' is not of ipVersion'"
// +kubebuilder:printcolumn:name="IPs",type=string,JSONPath=`.spec.ips`
// +kubebuilder:printcolumn:name="For",type=string,JSONPath=`.spec.for`
// +kubebuilder:printcolumn:name="In use",type=integer,JSONPath=`.status.inUse`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ReservedIP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ReservedIPSpec   `json:"spec"`
	Status ReservedIPStatus `json:"status,omitempty"`
}

// ReservedIPList is a list of reservations.
//
// +kubebuilder:object:root=true
type ReservedIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ReservedIP `json:"items"`
}
