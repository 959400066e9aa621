// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPSubnetSpec describes the addresses from which the controller makes pools for applications.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ips) || self.ips.all(a, a.split('-', 2).all(e, isIP(e) ? cidr(self.subnet).containsIP(e) : !isCIDR(e) || cidr(self.subnet).containsCIDR(e)))",fieldPath=".ips",messageExpression="'ips: ' + self.ips.filter(a, !a.split('-', 2).all(e, isIP(e) ? cidr(self.subnet).containsIP(e) : !isCIDR(e) || cidr(self.subnet).containsCIDR(e)))[0] + ' lies outside subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.excludeIPs) || self.excludeIPs.all(a, a.split('-', 2).all(e, isIP(e) ? cidr(self.subnet).containsIP(e) : !isCIDR(e) || cidr(self.subnet).containsCIDR(e)))",fieldPath=".excludeIPs",messageExpression="'excludeIPs: ' + self.excludeIPs.filter(a, !a.split('-', 2).all(e, isIP(e) ? cidr(self.subnet).containsIP(e) : !isCIDR(e) || cidr(self.subnet).containsCIDR(e)))[0] + ' lies outside subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.ipVersion) || self.ipVersion == cidr(self.subnet).ip().family()",fieldPath=".ipVersion",messageExpression="'ipVersion ' + (self.ipVersion == 4 ? '4' : '6') + ' is not the version of subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || cidr(self.subnet).containsIP(self.gateway) || self.subnet.contains(':') && cidr('fe80::/10').containsIP(self.gateway)",fieldPath=".gateway",messageExpression="'gateway ' + self.gateway + ' lies outside subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.routes) || self.routes.all(r, r.dst.contains(':') == self.subnet.contains(':'))",fieldPath=".routes",message="routes: dst must be of the IP version of subnet"
// +kubebuilder:validation:XValidation:rule="(has(self.network) ? self.network : \"\") == (has(oldSelf.network) ? oldSelf.network : \"\")",fieldPath=".network",message="network is immutable: make another IPSubnet"
type IPSubnetSpec struct {
	// subnet is the subnet in CIDR notation, without host bits. Immutable.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="subnet is immutable: make another IPSubnet"
	Subnet Subnet `json:"subnet"`
	// ipVersion is 4 or 6; optional, checked against the subnet.
	//
	// +kubebuilder:validation:Enum=4;6
	IPVersion *int64 `json:"ipVersion,omitempty"`
	// ips lists the addresses for pools: ranges "first-last", single addresses and CIDRs. Empty means
	// all host addresses of the subnet.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=4096
	IPs []IPRange `json:"ips,omitempty"`
	// excludeIPs lists addresses that no pool of the IPSubnet gets, in the form of ips.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=4096
	ExcludeIPs []IPRange `json:"excludeIPs,omitempty"`
	// gateway is the gateway of the subnet, or a link-local address such as fe80::1 with IPv6. All pools
	// of the IPSubnet have it.
	Gateway *Address `json:"gateway,omitempty"`
	// vlan is the VLAN of all pools of the IPSubnet.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	Vlan *int64 `json:"vlan,omitempty"`
	// network is the network of all pools of the IPSubnet. Immutable.
	//
	// +kubebuilder:validation:MaxLength=31
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z]([-a-z0-9]*[a-z0-9])?)?$')",message="network must be lower case letters, digits and dashes, start with a letter and not end with a dash"
	Network string `json:"network,omitempty"`
	// routes are the routes of all pools of the IPSubnet.
	//
	// +listType=map
	// +listMapKey=dst
	// +kubebuilder:validation:MaxItems=64
	Routes []Route `json:"routes,omitempty"`
	// default makes the controller serve applications for which no annotation names a pool or an
	// IPSubnet, on the first interface of their pods.
	Default *bool `json:"default,omitempty"`
	// namespaceName restricts the IPSubnet to applications in the named namespaces. If it is set,
	// namespaceAffinity is ignored.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	NamespaceName []string `json:"namespaceName,omitempty"`
	// namespaceAffinity restricts the IPSubnet to applications in namespaces with matching labels.
	NamespaceAffinity *metav1.LabelSelector `json:"namespaceAffinity,omitempty"`
	// maxPerNamespace is the greatest number of addresses that the pools of one namespace may have.
	// Unset means no limit.
	//
	// +kubebuilder:validation:Minimum=1
	MaxPerNamespace *int64 `json:"maxPerNamespace,omitempty"`
	// sourceGuard is that of all pools of the IPSubnet: Enforce, Observe or Off. Unset means that each
	// pool keeps its own, which is Enforce at first.
	SourceGuard SourceGuardMode `json:"sourceGuard,omitempty"`
	// sourceGuardAllow is that of all pools of the IPSubnet: what their pods may send beside their own
	// addresses and MAC. Unset means that each pool keeps its own, which is nothing at first.
	SourceGuardAllow *SourceGuardAllow `json:"sourceGuardAllow,omitempty"`
	// routerAdvertisements is that of all pools of the IPSubnet: Ignore or Accept. Unset means that each
	// pool keeps its own, which is Ignore at first.
	RouterAdvertisements RouterAdvertisements `json:"routerAdvertisements,omitempty"`
}

// IPSubnetStatus is the status of an IPSubnet. Only the controller writes it.
type IPSubnetStatus struct {
	// observedGeneration of the spec that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// total is the number of addresses that pools may have.
	Total int64 `json:"total,omitempty"`
	// allocated is the number of addresses that pools of the IPSubnet have.
	Allocated int64 `json:"allocated,omitempty"`
	// free is the number of addresses that no pool has.
	Free int64 `json:"free,omitempty"`
	// poolCount is the number of pools of the IPSubnet.
	PoolCount int64 `json:"poolCount,omitempty"`
	// pools lists the first 64 pools by name.
	// +listType=map
	// +listMapKey=name
	Pools []SubnetPool `json:"pools,omitempty"`
	// carving lists the addresses that the controller is about to write into pools. No other pool gets
	// them.
	// +listType=map
	// +listMapKey=pool
	Carving []Carving `json:"carving,omitempty"`
	// unserved lists the first 32 applications that name the IPSubnet and lack addresses.
	// +listType=atomic
	Unserved []Unserved `json:"unserved,omitempty"`
	// conditions: Ready, Overlapping, Exhausted.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SubnetPool is a pool of an IPSubnet.
type SubnetPool struct {
	// name is the name of the pool.
	Name string `json:"name"`
	// addresses is the number of addresses that the pool has.
	Addresses int64 `json:"addresses"`
}

// Carving is the addresses that a pool is about to get.
type Carving struct {
	// pool is the name of the pool.
	Pool string `json:"pool"`
	// ips lists ranges "first-last" and single addresses.
	// +listType=atomic
	IPs []string `json:"ips"`
}

// Unserved is an application that lacks addresses.
type Unserved struct {
	Application `json:",inline"`
	// message says what is missing, and what to do.
	Message string `json:"message"`
}

// IPSubnet is a set of addresses from which the controller makes pools for applications.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=flsubnet
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=`.spec.subnet`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.total`
// +kubebuilder:printcolumn:name="Allocated",type=integer,JSONPath=`.status.allocated`
// +kubebuilder:printcolumn:name="Pools",type=integer,JSONPath=`.status.poolCount`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Free",type=integer,priority=1,JSONPath=`.status.free`
// +kubebuilder:printcolumn:name="Gateway",type=string,priority=1,JSONPath=`.spec.gateway`
// +kubebuilder:printcolumn:name="Network",type=string,priority=1,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Default",type=boolean,priority=1,JSONPath=`.spec.default`
type IPSubnet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IPSubnetSpec   `json:"spec"`
	Status IPSubnetStatus `json:"status,omitempty"`
}

// AsPool returns a pool with the addresses, gateway, VLAN, network, routes, namespaces and virtual
// addresses of the IPSubnet.
func (s *IPSubnet) AsPool() *IPPool {
	return &IPPool{Spec: IPPoolSpec{
		Subnet: s.Spec.Subnet, IPVersion: s.Spec.IPVersion, IPs: s.Spec.IPs, ExcludeIPs: s.Spec.ExcludeIPs,
		Gateway: s.Spec.Gateway, Vlan: s.Spec.Vlan, Network: s.Spec.Network, Routes: s.Spec.Routes,
		NamespaceName: s.Spec.NamespaceName, NamespaceAffinity: s.Spec.NamespaceAffinity, SourceGuardAllow: s.Spec.SourceGuardAllow,
	}}
}

// IPSubnetList is a list of IPSubnets.
//
// +kubebuilder:object:root=true
type IPSubnetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPSubnet `json:"items"`
}
