// SPDX-License-Identifier: Apache-2.0

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
	// PathDiagnosis is for people: the agent's own command diagnose calls it.
	PathDiagnosis = "/v1/diagnosis"
)

const (
	// DefaultSocket is the path of the socket on which the agent listens.
	DefaultSocket = "/run/fenceline/agent.sock"
	// DefaultSpool is the directory in which the plugin leaves DEL calls that the agent did not answer.
	DefaultSpool = "/var/lib/fenceline/spool"
)

const (
	// CallTimeout is the longest time that the agent works on one call. Then it undoes the call.
	CallTimeout = 20 * time.Second
	// WaitTimeout is the longest time that an ADD waits for an address of a full pool. It covers the
	// default grace of a pod that ends, 30 s, and the proof that its address is free. With CallTimeout
	// it stays below two minutes, the default of the kubelet's runtimeRequestTimeout. The kubelet waits
	// for a sandbox twice as long.
	WaitTimeout = 90 * time.Second
	// answerTime is the time that the plugin waits for the error of a call that took too long.
	answerTime = 5 * time.Second
	// ClientTimeout and AddClientTimeout are the longest times that the plugin waits for an answer.
	ClientTimeout    = CallTimeout + answerTime
	AddClientTimeout = CallTimeout + WaitTimeout + answerTime
)

// Attachment identifies one interface of one container. The CNI specification forbids a runtime to
// make two calls for one attachment at the same time.
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

// Network is the part of the network configuration that the agent needs.
type Network struct {
	// Name of the network. Attachments of other networks on the same agent have other names.
	Name string `json:"name"`
	// Type of the plugin that the runtime called: macvlan, ipvlan, sriov …; fenceline if chained.
	Type string `json:"type"`
	// Master is the configured parent interface; empty if the plugin finds it by other means
	// (SR-IOV) or uses its default.
	Master string `json:"master,omitempty"`
	// Device is the PCI address of the device for the pod (SR-IOV), if the configuration names it.
	Device string `json:"device,omitempty"`
	// MACSpoofCheck: the plugin drops frames whose MAC is not the one that it gave the interface.
	MACSpoofCheck bool `json:"macSpoofCheck,omitempty"`
	// IsGateway: the plugin gives the bridge the address of the gateway.
	IsGateway bool `json:"isGateway,omitempty"`
	// DefaultIPv4IPPool and DefaultIPv6IPPool are pool names in order of preference: the primary
	// first, then backups. The agent expands wildcards.
	DefaultIPv4IPPool []string `json:"defaultIPv4IPPool,omitempty"`
	DefaultIPv6IPPool []string `json:"defaultIPv6IPPool,omitempty"`
	// Routes, CleanGateway and Ignored are set for an ADD only. Routes are added to those of the
	// pools. With CleanGateway the interface gets no default route. Ignored are the fields of the
	// configuration that have no effect, such as ipam.ranges.
	Routes       []Route  `json:"routes,omitempty"`
	CleanGateway bool     `json:"cleanGateway,omitempty"`
	Ignored      []string `json:"ignored,omitempty"`
}

// ConfiguredAddress is an address in prevResult, which an earlier plugin in the chain has set.
type ConfiguredAddress struct {
	Address netip.Prefix `json:"address"`
	// Gateway is the zero Addr if the subnet has none.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Interface and MAC are empty if prevResult does not contain them.
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac,omitempty"`
}

// Mode says how a pod uses an interface of Fenceline.
type Mode string

// The modes.
const (
	// ModeAuto is ModeUnderlay for the first interface of a pod and for the other interfaces of a pod
	// whose first interface is in mode underlay. It is ModeOverlay for all others.
	ModeAuto Mode = "auto"
	// ModeUnderlay: the underlay is the network of the pod. Node and Services are behind a host link.
	ModeUnderlay Mode = "underlay"
	// ModeOverlay: another network is that of the pod. The interface serves only its own addresses.
	ModeOverlay Mode = "overlay"
	// ModeOff: no route, rule or host link is made.
	ModeOff Mode = "off"
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{ModeAuto, ModeUnderlay, ModeOverlay, ModeOff} }

// Routing is the part of a chained configuration about host link and routes.
type Routing struct {
	// Mode is empty for ModeAuto.
	Mode Mode `json:"mode,omitempty"`
	// HostLink is nil for the default: the first interface of a pod in mode underlay has a host link.
	HostLink *bool `json:"hostLink,omitempty"`
	// HostLinkCIDRs are destinations behind the host link, besides the node and the Services.
	HostLinkCIDRs []netip.Prefix `json:"hostLinkCIDRs,omitempty"`
	// TxQueueLen is the queue length of the host link's interfaces in frames, 0 for the kernel's default.
	TxQueueLen int `json:"txQueueLen,omitempty"`
}

// AddRequest requests addresses for a new interface. With Chained it requests a guard for the leased
// addresses among Configured.
type AddRequest struct {
	Attachment
	// NetNS is the path of the container's network namespace. If the call is not chained, the
	// interface exists there and is down.
	NetNS   string  `json:"netns"`
	Pod     Pod     `json:"pod"`
	Network Network `json:"network"`
	// IPs are the addresses that the runtime requests by the CNI conventions (args cni ips,
	// capability ips, CNI_ARGS IP). Empty: the agent chooses.
	IPs []netip.Addr `json:"ips,omitempty"`
	// Chained: another plugin has already configured the interface.
	Chained bool `json:"chained,omitempty"`
	// Configured are the addresses of the interface in prevResult; only with Chained.
	Configured []ConfiguredAddress `json:"configured,omitempty"`
	// Routing is the configuration of host link and routes; only with Chained.
	Routing Routing `json:"routing,omitzero"`
}

// AddResponse is the answer to an AddRequest. It is empty for a chained request: the plugin passes
// prevResult on unchanged.
type AddResponse struct {
	IPs []IP `json:"ips,omitempty"`
	// Routes of the pod, the default routes among them.
	Routes []Route `json:"routes,omitempty"`
	// MAC is the interface's, in the answer to a chained ADD. It may be another one than in the result
	// of the plugin that made the interface. Empty from an agent of an earlier version.
	MAC string `json:"mac,omitempty"`
}

// IP is one address for the interface, with the prefix length of its subnet.
type IP struct {
	Address netip.Prefix `json:"address"`
	// Gateway is the zero Addr if the subnet has none.
	Gateway netip.Addr `json:"gateway,omitzero"`
}

// Route is one route of the pod.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	// GW is the zero Addr if the calling plugin is to use the gateway of the address of the same
	// family, as the reference plugins do.
	GW netip.Addr `json:"gw,omitzero"`
}

// DelRequest requests to fence and free the addresses of an attachment. It succeeds if there are
// none, and needs no network namespace.
type DelRequest struct {
	Attachment
	// NetNS is empty if the namespace is gone.
	NetNS string `json:"netns,omitempty"`
	// Pod is for messages. A runtime may omit it.
	Pod     Pod     `json:"pod"`
	Network Network `json:"network"`
	Chained bool    `json:"chained,omitempty"`
}

// CheckRequest requests a check that the attachment holds its addresses and is guarded.
type CheckRequest struct {
	Attachment
	NetNS   string  `json:"netns"`
	Pod     Pod     `json:"pod"`
	Network Network `json:"network"`
	Chained bool    `json:"chained,omitempty"`
	// Configured are the addresses of the interface in prevResult.
	Configured []ConfiguredAddress `json:"configured,omitempty"`
}

// GCRequest requests to fence and free every attachment of the network Network that is not in
// Valid. Attachments of other networks stay: a runtime makes one GC for each network, and does not
// know the networks that Multus added.
type GCRequest struct {
	Network string       `json:"network"`
	Valid   []Attachment `json:"valid"`
}
