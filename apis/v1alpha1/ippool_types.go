// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConflictMode is the reaction of a pool to a second speaker for an address.
//
// +kubebuilder:validation:Enum=Enforce;Observe;Off
type ConflictMode string

const (
	// ModeEnforce quarantines conflicting addresses and fences old holders.
	ModeEnforce ConflictMode = "Enforce"
	// ModeObserve only reports conflicts. Agents send no claims, and quarantine does not wait.
	ModeObserve ConflictMode = "Observe"
	// ModeOff sends no frames, except for gatewayCheck.
	ModeOff ConflictMode = "Off"
)

// NodeDownPolicy is the time at which an address is taken from a node that is down: Never,
// AfterTerminating, or "After <duration>", such as "After 2m".
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self in ['Never', 'AfterTerminating'] || self.matches('^After ([0-9]{1,6}(s|m|h))+$')",messageExpression="'nodeDown ' + self + ' is none of Never, AfterTerminating and After with a duration such as After 2m'"
type NodeDownPolicy string

const (
	// NodeDownNever waits for the node or for a person.
	NodeDownNever NodeDownPolicy = "Never"
	// NodeDownAfterTerminating takes the address once Kubernetes has marked
	// the pod Terminating and its grace is over.
	NodeDownAfterTerminating NodeDownPolicy = "AfterTerminating"
	// NodeDownAfterPrefix is the prefix of a duration. When the node has been silent for this time,
	// its pods are deleted and their addresses are taken.
	NodeDownAfterPrefix = "After "
)

// StatefulSetMode is the treatment of the address of a StatefulSet's pod: whether it stays with the
// name of the pod.
//
// +kubebuilder:validation:Enum=Prefer;Require;Off
type StatefulSetMode string

const (
	// StatefulSetPrefer keeps the address for the next pod of the name. If the pool of the address
	// does not serve that pod on its node, the pod gets an address of another pool.
	StatefulSetPrefer StatefulSetMode = "Prefer"
	// StatefulSetRequire keeps the address, and refuses a pod that cannot have it on its node.
	StatefulSetRequire StatefulSetMode = "Require"
	// StatefulSetOff keeps no address: the pods are treated like the pods of a Deployment.
	StatefulSetOff StatefulSetMode = "Off"
)

// IPPoolSpec describes addresses of one subnet and selects the pods that may use them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ips) || self.ips.all(a, a.split('-', 2).all(e, isIP(e) ? cidr(self.subnet).containsIP(e) : !isCIDR(e) || cidr(self.subnet).containsCIDR(e)))",fieldPath=".ips",messageExpression="'ips: ' + self.ips.filter(a, !a.split('-', 2).all(e, isIP(e) ? cidr(self.subnet).containsIP(e) : !isCIDR(e) || cidr(self.subnet).containsCIDR(e)))[0] + ' lies outside subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.excludeIPs) || self.excludeIPs.all(a, a.split('-', 2).all(e, isIP(e) ? cidr(self.subnet).containsIP(e) : !isCIDR(e) || cidr(self.subnet).containsCIDR(e)))",fieldPath=".excludeIPs",messageExpression="'excludeIPs: ' + self.excludeIPs.filter(a, !a.split('-', 2).all(e, isIP(e) ? cidr(self.subnet).containsIP(e) : !isCIDR(e) || cidr(self.subnet).containsCIDR(e)))[0] + ' lies outside subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.ipVersion) || self.ipVersion == cidr(self.subnet).ip().family()",fieldPath=".ipVersion",messageExpression="'ipVersion ' + (self.ipVersion == 4 ? '4' : '6') + ' is not the version of subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || cidr(self.subnet).containsIP(self.gateway) || self.subnet.contains(':') && cidr('fe80::/10').containsIP(self.gateway)",fieldPath=".gateway",messageExpression="'gateway ' + self.gateway + ' lies outside subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.routes) || self.routes.all(r, r.dst.contains(':') == self.subnet.contains(':'))",fieldPath=".routes",message="routes: dst must be of the IP version of subnet"
// +kubebuilder:validation:XValidation:rule="(has(self.network) ? self.network : \"\") == (has(oldSelf.network) ? oldSelf.network : \"\")",fieldPath=".network",message="network is immutable: make another pool"
// +kubebuilder:validation:XValidation:rule="(has(self.ipSubnet) ? self.ipSubnet : \"\") == (has(oldSelf.ipSubnet) ? oldSelf.ipSubnet : \"\")",fieldPath=".ipSubnet",message="ipSubnet is immutable: the controller makes the pools of an IPSubnet"
// +kubebuilder:validation:XValidation:rule="!has(self.ipSubnet) || has(self.application) && has(self.ips) && self.ips.size() > 0",fieldPath=".ipSubnet",message="a pool of an IPSubnet has application and ips"
type IPPoolSpec struct {
	// subnet is the subnet of the pool in CIDR notation, without host bits. Immutable.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="subnet is immutable: make another pool"
	Subnet Subnet `json:"subnet"`
	// ipVersion is 4 or 6; optional, checked against the subnet.
	//
	// +kubebuilder:validation:Enum=4;6
	IPVersion *int64 `json:"ipVersion,omitempty"`
	// ips lists the addresses of the pool: ranges "first-last", single addresses and CIDRs. Empty
	// means all host addresses of the subnet.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=4096
	IPs []IPRange `json:"ips,omitempty"`
	// excludeIPs lists addresses that the pool never hands out, in the form of ips.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=4096
	ExcludeIPs []IPRange `json:"excludeIPs,omitempty"`
	// gateway is the gateway of the subnet, or a link-local address such as fe80::1 with IPv6. It is
	// never handed out.
	Gateway *Address `json:"gateway,omitempty"`
	// gatewayCheck makes the start of a pod fail while gateway answers neither ARP nor ND on the parent
	// of the pod's interface. Unset means false. Without gateway, nothing is checked.
	GatewayCheck *bool `json:"gatewayCheck,omitempty"`
	// vlan is the VLAN tag that the network's CNI plugin sets. Fenceline itself sets no tag. If vlan
	// is set, parents names the VLAN interface or the interface below it. The address of a pod is
	// always probed on the parent of the pod's interface.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	Vlan *int64 `json:"vlan,omitempty"`
	// network is a name that separates equal addresses on networks that are not connected. Immutable.
	//
	// +kubebuilder:validation:MaxLength=31
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z]([-a-z0-9]*[a-z0-9])?)?$')",message="network must be lower case letters, digits and dashes, start with a letter and not end with a dash"
	Network string `json:"network,omitempty"`
	// parents names the interfaces of nodes that carry the subnet, also by alternative names. A pod whose
	// interface is on no such parent gets no address of the pool. An interface also counts by its bond,
	// a bond by its ports. Empty means any parent: agents learn them from ADDs.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Parents []InterfaceName `json:"parents,omitempty"`
	// routes are added in the pod, together with the default route through gateway.
	//
	// +listType=map
	// +listMapKey=dst
	// +kubebuilder:validation:MaxItems=64
	Routes []Route `json:"routes,omitempty"`
	// routeCheck refuses a pod one of whose routes (routes, the annotation routes, ipam.routes of the
	// CNI configuration) takes packets from a service CIDR, the subnet of the node, or the subnet of the
	// pool. Unset means true.
	RouteCheck *bool `json:"routeCheck,omitempty"`
	// default makes the pool a candidate for pods for which no annotation or configuration names a
	// pool.
	Default *bool `json:"default,omitempty"`
	// disable stops new allocations. Addresses in use stay.
	Disable *bool `json:"disable,omitempty"`
	// nodeName restricts the pool to the named nodes. If it is set, nodeAffinity is ignored.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	NodeName []string `json:"nodeName,omitempty"`
	// nodeAffinity restricts the pool to nodes with matching labels.
	NodeAffinity *metav1.LabelSelector `json:"nodeAffinity,omitempty"`
	// namespaceName restricts the pool to the named namespaces. If it is set, namespaceAffinity is
	// ignored.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	NamespaceName []string `json:"namespaceName,omitempty"`
	// namespaceAffinity restricts the pool to namespaces with matching labels.
	NamespaceAffinity *metav1.LabelSelector `json:"namespaceAffinity,omitempty"`
	// podAffinity restricts the pool to pods with matching labels.
	PodAffinity *metav1.LabelSelector `json:"podAffinity,omitempty"`
	// application restricts the pool to one interface of the pods of an application. The controller
	// sets it in the pools that it makes of an IPSubnet.
	Application *Application `json:"application,omitempty"`
	// ipSubnet is the IPSubnet from which the controller has taken the addresses. The controller then
	// makes, resizes and deletes the pool. Immutable.
	//
	// +kubebuilder:validation:MaxLength=253
	IPSubnet string `json:"ipSubnet,omitempty"`
	// multusName restricts the pool to attachments of the named
	// NetworkAttachmentDefinitions ("namespace/name").
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",messageExpression="'multusName: ' + self + ' is not of the form namespace/name'"
	MultusName []string `json:"multusName,omitempty"`
	// maxPerNamespace is the largest number of addresses of the pool that the pods of one namespace have
	// at a time. Addresses that are Retained or Quarantined for pods of the namespace count. An edit
	// takes no address from a pod. Unset means no limit.
	//
	// +kubebuilder:validation:Minimum=1
	MaxPerNamespace *int64 `json:"maxPerNamespace,omitempty"`
	// ipRequests lets pods request addresses of the pool (ips of CNI, Multus or an annotation). Unset
	// means true. An address that is kept for the pod stays with it.
	IPRequests *bool `json:"ipRequests,omitempty"`
	// conflictDetection configures the probes and the reaction to a conflict.
	//
	// +kubebuilder:default={}
	ConflictDetection *ConflictDetection `json:"conflictDetection,omitempty"`
	// reclaim configures when an address is taken from a holder that does not free it.
	//
	// +kubebuilder:default={}
	Reclaim *Reclaim `json:"reclaim,omitempty"`
	// retention limits the time for which addresses of StatefulSet pods are retained.
	//
	// +kubebuilder:default={}
	Retention *PoolRetention `json:"retention,omitempty"`
	// statefulSet is Prefer, Require or Off: whether the addresses of StatefulSet pods stay with the
	// names of the pods. The annotation static-ip of a pod takes precedence. Empty means statefulSet
	// of the chart.
	StatefulSet StatefulSetMode `json:"statefulSet,omitempty"`
	// warm is the number of verified addresses that each node keeps ready. Unset means automatic: up
	// to 2 where pods come and the pool has room (status.stock). 0 means none.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	Warm *int64 `json:"warm,omitempty"`
	// sourceGuard is Enforce, Observe or Off: whether pods may send only from their leased addresses and
	// the MAC of their interface. An edit counts for running pods too.
	//
	// +kubebuilder:default=Enforce
	SourceGuard SourceGuardMode `json:"sourceGuard,omitempty"`
	// sourceGuardAllow lists what the pods of the pool may send beside that, such as a virtual router's
	// frames.
	SourceGuardAllow *SourceGuardAllow `json:"sourceGuardAllow,omitempty"`
	// routerAdvertisements is Ignore or Accept: whether the pods take routes, prefixes, the MTU and
	// redirects from the routers of the segment, or only what Fenceline gives. Any host of the segment
	// can send them. An edit counts for new pods only. Empty means Ignore.
	RouterAdvertisements RouterAdvertisements `json:"routerAdvertisements,omitempty"`
	// macPolicy chooses the MAC of an interface by its address, or lets its pod choose. Unset means that the
	// interface keeps the MAC that its plugin gave it. An edit counts for new pods only.
	MACPolicy *MACPolicy `json:"macPolicy,omitempty"`
}

// RouterAdvertisements is the reaction of pods to advertisements and redirects of routers.
//
// +kubebuilder:validation:Enum=Ignore;Accept
type RouterAdvertisements string

const (
	// RoutersIgnored: addresses, routes and the MTU come from Fenceline alone.
	RoutersIgnored RouterAdvertisements = "Ignore"
	// RoutersAccepted: the kernel of the pod decides, by its own settings. Without sourceGuard Off, or
	// sourceGuardAllow, it makes no addresses.
	RoutersAccepted RouterAdvertisements = "Accept"
)

// SourceGuardMode is the reaction to a frame of a pod with a source that is not the pod's.
//
// +kubebuilder:validation:Enum=Enforce;Observe;Off
type SourceGuardMode string

const (
	// SourceGuardEnforce drops the frame.
	SourceGuardEnforce SourceGuardMode = "Enforce"
	// SourceGuardObserve counts and reports the frame, and lets it pass. The frames of routers, DHCP
	// servers and bridges are dropped, and so are tagged ones.
	SourceGuardObserve SourceGuardMode = "Observe"
	// SourceGuardOff drops only frames from an address that another pod of the node holds, or that is
	// fenced.
	SourceGuardOff SourceGuardMode = "Off"
)

// SourceGuardRole is a kind of frames that only a device of the network sends, or a way to send them.
//
// +kubebuilder:validation:Enum=Router;DHCPServer;Tagged;Bridge;DirectTransmit
type SourceGuardRole string

const (
	// RoleRouter: router advertisements, redirects, queries of IGMP and MLD, the protocols between
	// routers (VRRP, OSPF, EIGRP, PIM, DVMRP), and packets to link-local groups of routers.
	RoleRouter SourceGuardRole = "Router"
	// RoleDHCPServer: answers to DHCP clients, of IPv4 and IPv6.
	RoleDHCPServer SourceGuardRole = "DHCPServer"
	// RoleTagged: frames with a VLAN tag.
	RoleTagged SourceGuardRole = "Tagged"
	// RoleBridge: STP, LLDP, LACP, 802.1X and other frames between bridges, and all frames with LLC.
	RoleBridge SourceGuardRole = "Bridge"
	// RoleDirectTransmit: sockets of AF_XDP, and of AF_PACKET with PACKET_QDISC_BYPASS. Their frames pass
	// no guard, also from a fenced address. A pod may make them if each pool of its interfaces has the role.
	RoleDirectTransmit SourceGuardRole = "DirectTransmit"
)

// SourceGuardAllow lists what the pods of a pool may send beside their own addresses and MAC.
type SourceGuardAllow struct {
	// cidrs lists addresses that the pods may use without a lease, such as the virtual address of a
	// router, or 0.0.0.0/0 for a router. An address that another pod of the node holds stays forbidden.
	// The pool never hands out a single address of the list (/32, /128).
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	CIDRs []CIDR `json:"cidrs,omitempty"`
	// macs lists MACs that the pods may use beside that of the interface, such as 00:00:5e:00:01:01 for
	// VRRP.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=17
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$')",messageExpression="'macs: ' + self + ' is not a unicast MAC address such as 00:00:5e:00:01:01'"
	MACs []string `json:"macs,omitempty"`
	// roles lists kinds of frames that no pod may send otherwise: Router, DHCPServer, Tagged, Bridge.
	// DirectTransmit allows sockets whose frames pass no guard, if all pools of the pod have it.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	Roles []SourceGuardRole `json:"roles,omitempty"`
}

// Route is one route of a pod.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gw) || self.gw.size() == 0 || self.gw.contains(':') == self.dst.contains(':')",fieldPath=".gw",message="gw must be of the IP version of dst"
type Route struct {
	// dst is the destination in CIDR notation.
	//
	Dst CIDR `json:"dst"`
	// gw is the next hop. Empty means the pool's gateway, or an on-link route if the pool has none.
	//
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self)",messageExpression="'gw ' + self + ' is not an IP address'"
	Gw string `json:"gw,omitempty"`
}

// MACPolicyType is the way in which the MAC of an interface is chosen.
//
// +kubebuilder:validation:Enum=FromIP;Chosen
type MACPolicyType string

const (
	// MACFromIP: the prefix and the last four octets of the interface's first address, which is the IPv4
	// address if it has one.
	MACFromIP MACPolicyType = "FromIP"
	// MACChosen: the MAC that the annotation ips has for the first address. It has the prefix.
	MACChosen MACPolicyType = "Chosen"
)

// MACPolicy chooses the MAC of an interface. The pool of the interface's first address decides.
type MACPolicy struct {
	// type is FromIP: the MAC is the prefix and the last four octets of the first address. So it moves
	// with the address, and neighbours need not learn another one. Or it is Chosen: pods may choose, by
	// macs of their annotation ips, MACs that have the prefix. The others keep that of their plugin.
	Type MACPolicyType `json:"type"`
	// prefix is the first two octets of the MAC, in lower case. It must be a unicast and locally
	// administered one (IEEE 802), such as 0a:58.
	//
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{2}:[0-9a-f]{2}$')",messageExpression="'prefix ' + self + ' is not two octets in lower case such as 0a:58'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9a-f][13579bdf]:')",messageExpression="'prefix ' + self + ' is that of multicast MACs: use a unicast one such as 0a:58'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9a-f][048c]:')",messageExpression="'prefix ' + self + ' is not locally administered: use one such as 0a:58'"
	Prefix string `json:"prefix"`
}

// ConflictDetection configures the probe (RFC 5227, RFC 4862) and the claim.
type ConflictDetection struct {
	// mode is Enforce, Observe or Off.
	//
	// +kubebuilder:default=Enforce
	Mode ConflictMode `json:"mode,omitempty"`
	// probes is the number of probe rounds, at least 3.
	//
	// +kubebuilder:validation:Minimum=3
	// +kubebuilder:validation:Maximum=10
	// +kubebuilder:default=3
	Probes *int64 `json:"probes,omitempty"`
	// interval is the time between probe rounds.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('2s')",messageExpression="self + ' is not between 10ms and 2s'"
	// +kubebuilder:default="50ms"
	Interval *Duration `json:"interval,omitempty"`
	// ignoreMACs lists the MAC addresses of proxies. Their answers are not a conflict.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=17
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$')",messageExpression="'ignoreMACs: ' + self + ' is not a MAC address such as 02:00:00:00:00:01'"
	IgnoreMACs []string `json:"ignoreMACs,omitempty"`
}

// Reclaim configures when addresses are taken by force.
type Reclaim struct {
	// terminating takes the address of a pod that is still Terminating at its deletionTimestamp plus
	// extraGrace. Empty means reclaim.terminating of the chart.
	Terminating *bool `json:"terminating,omitempty"`
	// extraGrace is added to the grace period of the pod. Empty means reclaim.extraGrace of the
	// chart.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",messageExpression="self + ' is not between 0s and 24h'"
	ExtraGrace *Duration `json:"extraGrace,omitempty"`
	// nodeDown is the time at which an address is taken from a node that is down. Empty means
	// reclaim.nodeDown of the chart.
	NodeDown NodeDownPolicy `json:"nodeDown,omitempty"`
	// cooldown is the time for which a freed address is not handed out, unless no other address is
	// free.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",messageExpression="self + ' is not between 0s and 24h'"
	// +kubebuilder:default="30s"
	Cooldown *Duration `json:"cooldown,omitempty"`
}

// PoolRetention limits the retention of addresses of StatefulSet pods.
type PoolRetention struct {
	// max is the longest life of a Retained lease, whatever its pod asks for.
	//
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('87600h')",messageExpression="self + ' is not between 1m and 87600h'"
	Max *Duration `json:"max,omitempty"`
}

// IPPool is a set of addresses of one subnet with gateway, routes and affinities.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=flpool
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:selectablefield:JSONPath=`.spec.ipSubnet`
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=`.spec.subnet`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.total`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Quarantined",type=integer,JSONPath=`.status.quarantined`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Gateway",type=string,priority=1,JSONPath=`.spec.gateway`
// +kubebuilder:printcolumn:name="Network",type=string,priority=1,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Retained",type=integer,priority=1,JSONPath=`.status.retained`
// +kubebuilder:printcolumn:name="Warm",type=integer,priority=1,JSONPath=`.status.warm`
// +kubebuilder:printcolumn:name="Stock",type=integer,priority=1,JSONPath=`.status.stock`
// +kubebuilder:printcolumn:name="Mode",type=string,priority=1,JSONPath=`.spec.conflictDetection.mode`
// +kubebuilder:printcolumn:name="Default",type=boolean,priority=1,JSONPath=`.spec.default`
// +kubebuilder:printcolumn:name="IPSubnet",type=string,priority=1,JSONPath=`.spec.ipSubnet`
// +kubebuilder:printcolumn:name="Application",type=string,priority=1,JSONPath=`.spec.application.name`
type IPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IPPoolSpec   `json:"spec"`
	Status IPPoolStatus `json:"status,omitempty"`
}

// IPPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPPool `json:"items"`
}
