package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConflictMode says what a pool does about a second speaker for an address.
type ConflictMode string

const (
	// ModeEnforce refuses conflicting addresses and fences old holders.
	ModeEnforce ConflictMode = "Enforce"
	// ModeObserve reports only: no claim is sent and quarantine does not wait.
	ModeObserve ConflictMode = "Observe"
	// ModeOff sends no frame at all.
	ModeOff ConflictMode = "Off"
)

// NodeDownPolicy says when an address is taken from a node that is down.
type NodeDownPolicy string

const (
	// NodeDownNever waits for the node or for a person.
	NodeDownNever NodeDownPolicy = "Never"
	// NodeDownAfterTerminating takes the address once Kubernetes has marked
	// the pod Terminating and its grace is over.
	NodeDownAfterTerminating NodeDownPolicy = "AfterTerminating"
)

// IPPoolSpec describes addresses of one subnet and who may use them.
type IPPoolSpec struct {
	// subnet in CIDR notation without host bits. Immutable.
	Subnet string `json:"subnet"`
	// ipVersion is 4 or 6; optional, checked against the subnet.
	// +optional
	IPVersion *int64 `json:"ipVersion,omitempty"`
	// ips lists the addresses of the pool: "a-b" ranges, single addresses and
	// CIDRs. Empty means all host addresses of the subnet.
	// +optional
	IPs []string `json:"ips,omitempty"`
	// excludeIPs lists addresses that the pool never hands out, in the form of ips.
	// +optional
	ExcludeIPs []string `json:"excludeIPs,omitempty"`
	// gateway of the subnet; never handed out.
	// +optional
	Gateway *string `json:"gateway,omitempty"`
	// vlan selects the tagged segment of the parent on which addresses are probed. 0 is untagged.
	// +optional
	Vlan *int64 `json:"vlan,omitempty"`
	// network separates equal addresses on networks that are not connected. Immutable.
	// +optional
	Network string `json:"network,omitempty"`
	// parents names the interfaces of nodes that carry the subnet; empty means that they are learnt from ADD.
	// +optional
	Parents []string `json:"parents,omitempty"`
	// routes are added in the pod beside the default route through gateway.
	// +optional
	Routes []Route `json:"routes,omitempty"`
	// default makes the pool a candidate where nobody names a pool.
	// +optional
	Default *bool `json:"default,omitempty"`
	// disable stops new allocations; addresses in use stay.
	// +optional
	Disable *bool `json:"disable,omitempty"`
	// nodeName restricts the pool to the named nodes, and goes before nodeAffinity.
	// +optional
	NodeName []string `json:"nodeName,omitempty"`
	// nodeAffinity restricts the pool to nodes with matching labels.
	// +optional
	NodeAffinity *metav1.LabelSelector `json:"nodeAffinity,omitempty"`
	// namespaceName restricts the pool to the named namespaces, and goes before namespaceAffinity.
	// +optional
	NamespaceName []string `json:"namespaceName,omitempty"`
	// namespaceAffinity restricts the pool to namespaces with matching labels.
	// +optional
	NamespaceAffinity *metav1.LabelSelector `json:"namespaceAffinity,omitempty"`
	// podAffinity restricts the pool to pods with matching labels.
	// +optional
	PodAffinity *metav1.LabelSelector `json:"podAffinity,omitempty"`
	// multusName restricts the pool to attachments of the named
	// NetworkAttachmentDefinitions ("namespace/name").
	// +optional
	MultusName []string `json:"multusName,omitempty"`
	// conflictDetection says how the pool probes and what it does about a conflict.
	// +optional
	ConflictDetection *ConflictDetection `json:"conflictDetection,omitempty"`
	// reclaim says when an address is taken from a holder that does not give it back.
	// +optional
	Reclaim *Reclaim `json:"reclaim,omitempty"`
	// retention caps how long addresses of StatefulSet pods are kept.
	// +optional
	Retention *PoolRetention `json:"retention,omitempty"`
	// warm is how many verified addresses each node keeps ready.
	// +optional
	Warm *int64 `json:"warm,omitempty"`
}

// Route is one route of a pod.
type Route struct {
	// dst in CIDR notation.
	Dst string `json:"dst"`
	// gw is the next hop; empty means on link.
	// +optional
	Gw string `json:"gw,omitempty"`
}

// ConflictDetection configures the probe (RFC 5227, RFC 4862) and the claim.
type ConflictDetection struct {
	// mode is Enforce, Observe or Off.
	// +optional
	Mode ConflictMode `json:"mode,omitempty"`
	// probes is the number of probe rounds, at least 3.
	// +optional
	Probes *int64 `json:"probes,omitempty"`
	// interval between probe rounds.
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
	// ignoreMACs lists proxies whose answers are no conflict.
	// +optional
	IgnoreMACs []string `json:"ignoreMACs,omitempty"`
}

// Reclaim configures when addresses are taken back by force.
type Reclaim struct {
	// terminating takes the address of a pod that is Terminating past its deletionTimestamp plus extraGrace.
	// +optional
	Terminating *bool `json:"terminating,omitempty"`
	// extraGrace is waited on top of the pod's own grace.
	// +optional
	ExtraGrace *metav1.Duration `json:"extraGrace,omitempty"`
	// nodeDown says when an address is taken from a node that is down.
	// +optional
	NodeDown NodeDownPolicy `json:"nodeDown,omitempty"`
	// cooldown keeps a freed address out of use unless nothing else is free.
	// +optional
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`
}

// PoolRetention caps the retention of addresses of StatefulSet pods.
type PoolRetention struct {
	// max is the longest time that a Retained lease lives; empty means no limit.
	// +optional
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
	// agents is how many node agents share the pool; each agent's index stands on its pod.
	// +optional
	Agents int64 `json:"agents,omitempty"`
	// conditions: Ready, Overlapping, Exhausted, Unfenced.
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
)

// IPPool is a set of addresses of one subnet with gateway, routes and affinities.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=flpool
// +kubebuilder:subresource:status
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
