package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReservedIPSpec lists addresses that no pool hands out.
type ReservedIPSpec struct {
	// ipVersion is 4 or 6; optional, checked against ips.
	//
	// +optional
	// +kubebuilder:validation:Enum=4;6
	IPVersion *int64 `json:"ipVersion,omitempty"`
	// ips are "a-b" ranges, single addresses and CIDRs, of either IP version. They
	// are reserved on every network.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=95
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self) || (self.split('-').size() == 2 && self.split('-').all(e, isIP(e)))",messageExpression="'ips: ' + self + ' is neither an address nor a CIDR nor a range first-last'"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",messageExpression="'ips: ' + self + ' has host bits set'"
	// +kubebuilder:validation:items:XValidation:rule="self.split('-').size() != 2 || !isIP(self.split('-')[0]) || !isIP(self.split('-')[1]) || self.split('-')[0].contains(':') == self.split('-')[1].contains(':')",messageExpression="'ips: the range ' + self + ' mixes IPv4 and IPv6'"
	// +kubebuilder:validation:items:XValidation:rule="self.contains(':') || self.split('-').size() != 2 || !isIP(self.split('-')[0]) || !isIP(self.split('-')[1]) || int(self.split('-')[0].split('.')[0]) * 16777216 + int(self.split('-')[0].split('.')[1]) * 65536 + int(self.split('-')[0].split('.')[2]) * 256 + int(self.split('-')[0].split('.')[3]) <= int(self.split('-')[1].split('.')[0]) * 16777216 + int(self.split('-')[1].split('.')[1]) * 65536 + int(self.split('-')[1].split('.')[2]) * 256 + int(self.split('-')[1].split('.')[3])",messageExpression="'ips: the range ' + self + ' ends before it starts'"
	IPs []string `json:"ips"`
}

// ReservedIPStatus is written by the controller alone.
type ReservedIPStatus struct {
	// observedGeneration of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// inUse is the number of reserved addresses that have a lease still.
	// +optional
	InUse int64 `json:"inUse,omitempty"`
	// conditions: Ready, InUse.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionInUse of a ReservedIP: some of its addresses have a lease; the
// reservation takes effect for each of them when it is free.
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
