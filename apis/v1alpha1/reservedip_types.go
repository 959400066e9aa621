// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReservedIPSpec lists the addresses that no pool hands out, or only to the one for whom they are kept.
//
// +kubebuilder:validation:XValidation:rule="!has(self.network) || has(self.__for__)",fieldPath=".network",message="network is only for addresses that are kept for somebody: name whom in for"
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
	// network is that of the pools (spec.network) that hand the addresses out to the one in for. Empty means
	// the pools without a network.
	//
	// +kubebuilder:validation:MaxLength=63
	Network string `json:"network,omitempty"`
}

// ReservedFor names a pod, the pods of a StatefulSet, a virtual machine, or all pods of a namespace.
//
// +kubebuilder:validation:XValidation:rule="[has(self.pod), has(self.statefulSet), has(self.virtualMachine)].filter(x, x).size() <= 1",message="for names more than one: keep pod, statefulSet or virtualMachine"
type ReservedFor struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
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
}

// IsNamespace reports whether all pods of the namespace share the addresses.
func (f ReservedFor) IsNamespace() bool { return f.Pod+f.StatefulSet+f.VirtualMachine == "" }

// String names the one for people: "pod shop/web-0".
func (f ReservedFor) String() string {
	for kind, name := range map[string]string{"pod": f.Pod, "StatefulSet": f.StatefulSet, "virtual machine": f.VirtualMachine} {
		if name != "" {
			return kind + " " + f.Namespace + "/" + name
		}
	}
	return "namespace " + f.Namespace
}

// ReservedIPStatus is the status of a ReservedIP. Only the controller writes it.
type ReservedIPStatus struct {
	// observedGeneration of the spec that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// inUse is the number of reserved addresses that still have a lease.
	InUse int64 `json:"inUse,omitempty"`
	// conditions: Ready, InUse, Contested, SubjectMissing.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionInUse of a ReservedIP: some of its addresses have a lease. The reservation takes effect for
// each of them when its lease ends.
const ConditionInUse = "InUse"

// Conditions of a ReservedIP with spec.for.
const (
	// ConditionContested: another ReservedIP has one of its addresses. Nobody gets such an address.
	ConditionContested = "Contested"
	// ConditionSubjectMissing: the one for whom the addresses are kept does not exist.
	ConditionSubjectMissing = "SubjectMissing"
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
