package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConflictMode says what a pool does about a second speaker for an address.
//
// +kubebuilder:validation:Enum=Enforce;Observe;Off
type ConflictMode string

const (
	// ModeEnforce refuses conflicting addresses and fences old holders.
	ModeEnforce ConflictMode = "Enforce"
	// ModeObserve reports only: no claim is sent and quarantine does not wait.
	ModeObserve ConflictMode = "Observe"
	// ModeOff sends no frame at all.
	ModeOff ConflictMode = "Off"
)

// NodeDownPolicy says when an address is taken from a node that is down:
// Never, AfterTerminating, or "After <duration>", such as "After 2m".
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
	// NodeDownAfterPrefix stands before the duration for which a node must have
	// been silent before its pods are deleted and their addresses taken.
	NodeDownAfterPrefix = "After "
)

// IPPoolSpec describes addresses of one subnet and who may use them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ips) || self.ips.all(a, a.contains(':') == self.subnet.contains(':'))",fieldPath=".ips",messageExpression="'ips: ' + self.ips.filter(a, a.contains(':') != self.subnet.contains(':'))[0] + ' is not of the IP version of subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.ips) || !isCIDR(self.subnet) || self.ips.all(a, a.contains(':') != self.subnet.contains(':') || a.split('-').all(e, isCIDR(e) ? cidr(self.subnet).containsCIDR(e) : !isIP(e) || cidr(self.subnet).containsIP(e)))",fieldPath=".ips",messageExpression="'ips: ' + self.ips.filter(a, a.contains(':') == self.subnet.contains(':') && !a.split('-').all(e, isCIDR(e) ? cidr(self.subnet).containsCIDR(e) : !isIP(e) || cidr(self.subnet).containsIP(e)))[0] + ' lies outside subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.excludeIPs) || self.excludeIPs.all(a, a.contains(':') == self.subnet.contains(':'))",fieldPath=".excludeIPs",messageExpression="'excludeIPs: ' + self.excludeIPs.filter(a, a.contains(':') != self.subnet.contains(':'))[0] + ' is not of the IP version of subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.excludeIPs) || !isCIDR(self.subnet) || self.excludeIPs.all(a, a.contains(':') != self.subnet.contains(':') || a.split('-').all(e, isCIDR(e) ? cidr(self.subnet).containsCIDR(e) : !isIP(e) || cidr(self.subnet).containsIP(e)))",fieldPath=".excludeIPs",messageExpression="'excludeIPs: ' + self.excludeIPs.filter(a, a.contains(':') == self.subnet.contains(':') && !a.split('-').all(e, isCIDR(e) ? cidr(self.subnet).containsCIDR(e) : !isIP(e) || cidr(self.subnet).containsIP(e)))[0] + ' lies outside subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.ipVersion) || !isCIDR(self.subnet) || self.ipVersion == cidr(self.subnet).ip().family()",fieldPath=".ipVersion",messageExpression="'ipVersion ' + (self.ipVersion == 4 ? '4' : '6') + ' is not the version of subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.subnet) || cidr(self.subnet).containsIP(self.gateway)",fieldPath=".gateway",messageExpression="'gateway ' + self.gateway + ' lies outside subnet ' + self.subnet"
// +kubebuilder:validation:XValidation:rule="!has(self.routes) || self.routes.all(r, r.dst.contains(':') == self.subnet.contains(':'))",fieldPath=".routes",message="routes: dst must be of the IP version of subnet"
// +kubebuilder:validation:XValidation:rule="(has(self.network) ? self.network : \"\") == (has(oldSelf.network) ? oldSelf.network : \"\")",fieldPath=".network",message="network is immutable: make another pool"
type IPPoolSpec struct {
	// subnet in CIDR notation without host bits. Immutable.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",messageExpression="'subnet ' + self + ' is no CIDR'"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",messageExpression="'subnet ' + self + ' has host bits set'"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="subnet is immutable: make another pool"
	Subnet string `json:"subnet"`
	// ipVersion is 4 or 6; optional, checked against the subnet.
	//
	// +optional
	// +kubebuilder:validation:Enum=4;6
	IPVersion *int64 `json:"ipVersion,omitempty"`
	// ips lists the addresses of the pool: "a-b" ranges, single addresses and
	// CIDRs. Empty means all host addresses of the subnet.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=95
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self) || (self.split('-').size() == 2 && self.split('-').all(e, isIP(e)))",messageExpression="'ips: ' + self + ' is neither an address nor a CIDR nor a range first-last'"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",messageExpression="'ips: ' + self + ' has host bits set'"
	// +kubebuilder:validation:items:XValidation:rule="self.split('-').size() != 2 || !isIP(self.split('-')[0]) || !isIP(self.split('-')[1]) || self.split('-')[0].contains(':') == self.split('-')[1].contains(':')",messageExpression="'ips: the range ' + self + ' mixes IPv4 and IPv6'"
	// +kubebuilder:validation:items:XValidation:rule="self.contains(':') || self.split('-').size() != 2 || !isIP(self.split('-')[0]) || !isIP(self.split('-')[1]) || int(self.split('-')[0].split('.')[0]) * 16777216 + int(self.split('-')[0].split('.')[1]) * 65536 + int(self.split('-')[0].split('.')[2]) * 256 + int(self.split('-')[0].split('.')[3]) <= int(self.split('-')[1].split('.')[0]) * 16777216 + int(self.split('-')[1].split('.')[1]) * 65536 + int(self.split('-')[1].split('.')[2]) * 256 + int(self.split('-')[1].split('.')[3])",messageExpression="'ips: the range ' + self + ' ends before it starts'"
	IPs []string `json:"ips,omitempty"`
	// excludeIPs lists addresses that the pool never hands out, in the form of ips.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=95
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self) || (self.split('-').size() == 2 && self.split('-').all(e, isIP(e)))",messageExpression="'excludeIPs: ' + self + ' is neither an address nor a CIDR nor a range first-last'"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",messageExpression="'excludeIPs: ' + self + ' has host bits set'"
	// +kubebuilder:validation:items:XValidation:rule="self.split('-').size() != 2 || !isIP(self.split('-')[0]) || !isIP(self.split('-')[1]) || self.split('-')[0].contains(':') == self.split('-')[1].contains(':')",messageExpression="'excludeIPs: the range ' + self + ' mixes IPv4 and IPv6'"
	// +kubebuilder:validation:items:XValidation:rule="self.contains(':') || self.split('-').size() != 2 || !isIP(self.split('-')[0]) || !isIP(self.split('-')[1]) || int(self.split('-')[0].split('.')[0]) * 16777216 + int(self.split('-')[0].split('.')[1]) * 65536 + int(self.split('-')[0].split('.')[2]) * 256 + int(self.split('-')[0].split('.')[3]) <= int(self.split('-')[1].split('.')[0]) * 16777216 + int(self.split('-')[1].split('.')[1]) * 65536 + int(self.split('-')[1].split('.')[2]) * 256 + int(self.split('-')[1].split('.')[3])",messageExpression="'excludeIPs: the range ' + self + ' ends before it starts'"
	ExcludeIPs []string `json:"excludeIPs,omitempty"`
	// gateway of the subnet; never handed out.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",messageExpression="'gateway ' + self + ' is no address'"
	Gateway *string `json:"gateway,omitempty"`
	// vlan is the tag that the network's CNI plugin sets. Fenceline sets none: what
	// parents names is then the interface that the VLAN's hangs on, or that one
	// itself. A pod's own address is always probed on the parent of its interface.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	Vlan *int64 `json:"vlan,omitempty"`
	// network separates equal addresses on networks that are not connected. Immutable.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=31
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z]([-a-z0-9]*[a-z0-9])?)?$')",message="network must be lower case letters, digits and dashes, start with a letter and not end with a dash"
	Network string `json:"network,omitempty"`
	// parents names the interfaces of nodes that carry the subnet; empty means that they are learnt from ADD.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[^/:[:space:]]+$')",messageExpression="'parents: ' + self + ' is no name of an interface'"
	Parents []string `json:"parents,omitempty"`
	// routes are added in the pod beside the default route through gateway.
	//
	// +optional
	// +listType=map
	// +listMapKey=dst
	// +kubebuilder:validation:MaxItems=64
	Routes []Route `json:"routes,omitempty"`
	// default makes the pool a candidate where nobody names a pool.
	// +optional
	Default *bool `json:"default,omitempty"`
	// disable stops new allocations; addresses in use stay.
	// +optional
	Disable *bool `json:"disable,omitempty"`
	// nodeName restricts the pool to the named nodes, and goes before nodeAffinity.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	NodeName []string `json:"nodeName,omitempty"`
	// nodeAffinity restricts the pool to nodes with matching labels.
	// +optional
	NodeAffinity *metav1.LabelSelector `json:"nodeAffinity,omitempty"`
	// namespaceName restricts the pool to the named namespaces, and goes before namespaceAffinity.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	NamespaceName []string `json:"namespaceName,omitempty"`
	// namespaceAffinity restricts the pool to namespaces with matching labels.
	// +optional
	NamespaceAffinity *metav1.LabelSelector `json:"namespaceAffinity,omitempty"`
	// podAffinity restricts the pool to pods with matching labels.
	// +optional
	PodAffinity *metav1.LabelSelector `json:"podAffinity,omitempty"`
	// multusName restricts the pool to attachments of the named
	// NetworkAttachmentDefinitions ("namespace/name").
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",messageExpression="'multusName: ' + self + ' is not of the form namespace/name'"
	MultusName []string `json:"multusName,omitempty"`
	// conflictDetection says how the pool probes and what it does about a conflict.
	//
	// +optional
	// +kubebuilder:default={}
	ConflictDetection *ConflictDetection `json:"conflictDetection,omitempty"`
	// reclaim says when an address is taken from a holder that does not give it back.
	//
	// +optional
	// +kubebuilder:default={}
	Reclaim *Reclaim `json:"reclaim,omitempty"`
	// retention caps how long addresses of StatefulSet pods are kept.
	// +optional
	Retention *PoolRetention `json:"retention,omitempty"`
	// warm is how many verified addresses each node keeps ready.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	// +kubebuilder:default=0
	Warm *int64 `json:"warm,omitempty"`
}

// Route is one route of a pod.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gw) || self.gw.size() == 0 || self.gw.contains(':') == self.dst.contains(':')",fieldPath=".gw",message="gw must be of the IP version of dst"
type Route struct {
	// dst in CIDR notation.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",messageExpression="'dst ' + self + ' is no CIDR'"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",messageExpression="'dst ' + self + ' has host bits set'"
	Dst string `json:"dst"`
	// gw is the next hop; empty means the pool's gateway, or on link without one.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self)",messageExpression="'gw ' + self + ' is no address'"
	Gw string `json:"gw,omitempty"`
}

// ConflictDetection configures the probe (RFC 5227, RFC 4862) and the claim.
type ConflictDetection struct {
	// mode is Enforce, Observe or Off.
	//
	// +optional
	// +kubebuilder:default=Enforce
	Mode ConflictMode `json:"mode,omitempty"`
	// probes is the number of probe rounds, at least 3.
	//
	// +optional
	// +kubebuilder:validation:Minimum=3
	// +kubebuilder:validation:Maximum=10
	// +kubebuilder:default=3
	Probes *int64 `json:"probes,omitempty"`
	// interval between probe rounds.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$')",messageExpression="'interval ' + self + ' is no duration such as 50ms, 5s or 1h30m'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$') || (duration(self) >= duration('10ms') && duration(self) <= duration('2s'))",messageExpression="'interval ' + self + ' is not between 10ms and 2s'"
	// +kubebuilder:default="50ms"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// ignoreMACs lists proxies whose answers are no conflict.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=17
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$')",messageExpression="'ignoreMACs: ' + self + ' is no MAC address such as 02:00:00:00:00:01'"
	IgnoreMACs []string `json:"ignoreMACs,omitempty"`
}

// Reclaim configures when addresses are taken back by force.
type Reclaim struct {
	// terminating takes the address of a pod that is Terminating past its
	// deletionTimestamp plus extraGrace; empty means reclaim.terminating of the chart.
	//
	// +optional
	Terminating *bool `json:"terminating,omitempty"`
	// extraGrace is waited on top of the pod's own grace; empty means
	// reclaim.extraGrace of the chart.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$')",messageExpression="'extraGrace ' + self + ' is no duration such as 50ms, 5s or 1h30m'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$') || (duration(self) >= duration('0s') && duration(self) <= duration('24h'))",messageExpression="'extraGrace ' + self + ' is not between 0s and 24h'"
	ExtraGrace *metav1.Duration `json:"extraGrace,omitempty"`
	// nodeDown says when an address is taken from a node that is down; empty
	// means reclaim.nodeDown of the chart.
	//
	// +optional
	NodeDown NodeDownPolicy `json:"nodeDown,omitempty"`
	// cooldown keeps a freed address out of use unless nothing else is free.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$')",messageExpression="'cooldown ' + self + ' is no duration such as 50ms, 5s or 1h30m'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$') || (duration(self) >= duration('0s') && duration(self) <= duration('24h'))",messageExpression="'cooldown ' + self + ' is not between 0s and 24h'"
	// +kubebuilder:default="30s"
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`
}

// PoolRetention caps the retention of addresses of StatefulSet pods.
type PoolRetention struct {
	// max is the longest time that a Retained lease lives; empty means no limit.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$')",messageExpression="'max ' + self + ' is no duration such as 50ms, 5s or 1h30m'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0|([0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h))+)$') || (duration(self) >= duration('1m') && duration(self) <= duration('87600h'))",messageExpression="'max ' + self + ' is not between 1m and 87600h'"
	Max *metav1.Duration `json:"max,omitempty"`
}

// IPPoolStatus is written by the controller alone.
type IPPoolStatus struct {
	// observedGeneration of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// total is the number of addresses that the pool can hand out.
	// +optional
	Total int64 `json:"total,omitempty"`
	// used is the number of leases in any state.
	// +optional
	Used int64 `json:"used,omitempty"`
	// free is the number of addresses that the pool can hand out and nobody has a
	// lease of.
	// +optional
	Free int64 `json:"free,omitempty"`
	// bound, warm, quarantined and retained count the leases by state.
	// +optional
	Bound int64 `json:"bound,omitempty"`
	// +optional
	Warm int64 `json:"warm,omitempty"`
	// +optional
	Quarantined int64 `json:"quarantined,omitempty"`
	// +optional
	Retained int64 `json:"retained,omitempty"`
	// inUse is a base64 bitmap, one bit per offset in the subnet (bit i of
	// byte j is offset 8j+i), set where an address is in use or cooling down. A hint, never the truth.
	// +optional
	InUse string `json:"inUse,omitempty"`
	// scarce asks agents to give their Warm leases up.
	// +optional
	Scarce bool `json:"scarce,omitempty"`
	// agents is how many node agents there are, with an index or without.
	// +optional
	Agents int64 `json:"agents,omitempty"`
	// served is how many of them are on nodes that the pool allows.
	// +optional
	Served int64 `json:"served,omitempty"`
	// shares is into how many parts agents divide the pool, at least one for each index of an agent's pod.
	// +optional
	Shares int64 `json:"shares,omitempty"`
	// reserved is the number of addresses of the pool that a ReservedIP keeps back.
	// +optional
	Reserved int64 `json:"reserved,omitempty"`
	// conditions: Ready, Overlapping, Exhausted, Unfenced, Outside, StoreWentBack.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Condition types of an IPPool.
const (
	ConditionReady       = "Ready"
	ConditionOverlapping = "Overlapping"
	ConditionExhausted   = "Exhausted"
	ConditionUnfenced    = "Unfenced"
	// ConditionOutside: leases hold addresses that the pool does not hand out
	// any more, because ips, excludeIPs, gateway or a reservation has changed.
	ConditionOutside = "Outside"
	// ConditionStoreWentBack: the API server's store was restored without
	// --bump-revision, and holders cannot be fenced until it has come as far again.
	ConditionStoreWentBack = "StoreWentBack"
)

// IPPool is a set of addresses of one subnet with gateway, routes and affinities.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=flpool
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
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
// +kubebuilder:printcolumn:name="Mode",type=string,priority=1,JSONPath=`.spec.conflictDetection.mode`
// +kubebuilder:printcolumn:name="Default",type=boolean,priority=1,JSONPath=`.spec.default`
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
