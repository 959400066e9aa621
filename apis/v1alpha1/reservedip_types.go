// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReservedIPSpec lists the addresses that no pool hands out.
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
}

// ReservedIPStatus is the status of a ReservedIP. Only the controller writes it.
type ReservedIPStatus struct {
	// observedGeneration of the spec that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// inUse is the number of reserved addresses that still have a lease.
	InUse int64 `json:"inUse,omitempty"`
	// conditions: Ready, InUse.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionInUse of a ReservedIP: some of its addresses have a lease. The reservation takes effect for
// each of them when its lease ends.
const ConditionInUse = "InUse"

// ReservedIP keeps addresses back from every pool.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=flreserved
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.ipVersion) || self.spec.ips.all(a, a.contains(':') == (self.spec.ipVersion == 6))",fieldPath=".spec.ips",messageExpression="'ips: ' + self.spec.ips.filter(a, a.contains(':') != (self.spec.ipVersion == 6))[0] + ' is not of ipVersion'"
// +kubebuilder:printcolumn:name="IPs",type=string,JSONPath=`.spec.ips`
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
