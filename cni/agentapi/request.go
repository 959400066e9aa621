package agentapi

import (
	"net/netip"
	"time"
)

// Paths of the calls.
const (
	PathAdd    = "/v1/add"
	PathDel    = "/v1/del"
	PathCheck  = "/v1/check"
	PathGC     = "/v1/gc"
	PathStatus = "/v1/status"
)

const (
	// DefaultSocket is where the agent listens.
	DefaultSocket = "/run/fenceline/agent.sock"
	// DefaultSpool is where the plugin leaves DEL calls while the agent is away.
	DefaultSpool = "/var/lib/fenceline/spool"
)

const (
	// CallTimeout is how long the agent works on one call before it gives up and undoes it.
	CallTimeout = 20 * time.Second
	// ClientTimeout is how long the plugin waits for an answer. It is longer than
	// CallTimeout, so that the agent's reason arrives before the plugin's patience ends.
	ClientTimeout = CallTimeout + 5*time.Second
)

// Attachment names one interface of one container. CNI guarantees that a
// runtime makes no two calls for one attachment at the same time.
type Attachment struct {
	// ContainerID is CNI_CONTAINERID, the ID of the pod's sandbox.
	ContainerID string `json:"containerID"`
	// Interface is CNI_IFNAME, the name of the interface inside the container.
	Interface string `json:"interface"`
}

// Pod is the pod of the call, as the runtime names it in CNI_ARGS.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID may be empty with old runtimes. For a static pod it is not the UID of the mirror pod.
	UID string `json:"uid,omitempty"`
}

// Network is what the agent needs to know of the network configuration.
type Network struct {
	// Name of the network. Attachments of other networks on the same agent have other names.
	Name string `json:"name"`
	// Type of the plugin that the runtime called: macvlan, ipvlan, sriov …, or
	// fenceline when it is chained.
	Type string `json:"type"`
	// Master is the configured parent interface; empty when the plugin learns it
	// otherwise (SR-IOV) or takes its default.
	Master string `json:"master,omitempty"`
	// DefaultIPv4IPPool and DefaultIPv6IPPool are pool names in order of preference:
	// the primary first, then backups. Wildcards are the agent's to expand.
	DefaultIPv4IPPool []string `json:"defaultIPv4IPPool,omitempty"`
	DefaultIPv6IPPool []string `json:"defaultIPv6IPPool,omitempty"`
}

// ConfiguredAddress is an address that an earlier plugin has given to the
// interface of the call, as prevResult reports it.
type ConfiguredAddress struct {
	Address netip.Prefix `json:"address"`
	// Interface and MAC are empty when prevResult does not tell.
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac,omitempty"`
}

// AddRequest asks for addresses for a new interface, or, when Chained, to guard
// the leased ones among those that it has already.
type AddRequest struct {
	Attachment
	// NetNS is the path of the container's network namespace. When the call is not
	// chained the interface exists there and is down.
	NetNS   string  `json:"netns"`
	Pod     Pod     `json:"pod"`
	Network Network `json:"network"`
	// IPs are the addresses that the runtime requests by the CNI conventions (args
	// cni ips, capability ips, CNI_ARGS IP). Empty: the agent chooses.
	IPs []netip.Addr `json:"ips,omitempty"`
	// Chained says that another plugin has already configured the interface.
	Chained bool `json:"chained,omitempty"`
	// Configured is what prevResult gives to the interface; only when Chained.
	Configured []ConfiguredAddress `json:"configured,omitempty"`
}

// AddResponse is the answer to an AddRequest. It is empty when the request was
// chained: the plugin passes prevResult on unchanged.
type AddResponse struct {
	IPs []IP `json:"ips,omitempty"`
	// Routes of the pod, the default routes among them.
	Routes []Route `json:"routes,omitempty"`
}

// IP is one address for the interface, with the prefix length of its subnet.
type IP struct {
	Address netip.Prefix `json:"address"`
	// Gateway is the zero Addr when the subnet has none.
	Gateway netip.Addr `json:"gateway,omitzero"`
}

// Route is one route of the pod.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	// GW is the zero Addr when the calling plugin shall use the gateway of the
	// address of the same family, as the reference plugins do.
	GW netip.Addr `json:"gw,omitzero"`
}

// DelRequest asks to fence and free whatever the attachment holds. It succeeds
// when there is nothing, and it never needs the network namespace.
type DelRequest struct {
	Attachment
	// NetNS is empty when the namespace is gone.
	NetNS string `json:"netns,omitempty"`
	// Pod is for messages; a runtime may leave it out.
	Pod     Pod     `json:"pod"`
	Network Network `json:"network"`
	Chained bool    `json:"chained,omitempty"`
}

// CheckRequest asks whether the attachment still holds its addresses and is guarded.
type CheckRequest struct {
	Attachment
	NetNS   string  `json:"netns"`
	Pod     Pod     `json:"pod"`
	Network Network `json:"network"`
	Chained bool    `json:"chained,omitempty"`
	// Configured are the addresses of the interface in prevResult.
	Configured []ConfiguredAddress `json:"configured,omitempty"`
}

// GCRequest asks to fence and free every attachment of the network Network that
// is not in Valid. Attachments of other networks must stay: a runtime collects
// each network by itself, and knows nothing of those that Multus added.
type GCRequest struct {
	Network string       `json:"network"`
	Valid   []Attachment `json:"valid"`
}
