// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// Phase is the progress of an ADD or a DEL.
type Phase string

// The phases. An ADD writes Intent before it creates the first lease, and Bound before it answers.
// A DEL writes Releasing before it frees a lease.
const (
	Intent    Phase = "Intent"
	Bound     Phase = "Bound"
	Releasing Phase = "Releasing"
)

// Entry records one interface of a pod sandbox.
type Entry struct {
	ContainerID string `json:"containerID"`
	Interface   string `json:"interface"`
	// Index is the ifindex of the interface in its network namespace; 0: unknown, as in entries of
	// earlier versions.
	Index int    `json:"index,omitempty"`
	NetNS string `json:"netns,omitempty"`
	// Network is the name of the network in the CNI configuration. GC selects entries by it.
	Network      string `json:"network,omitempty"`
	PodNamespace string `json:"podNamespace,omitempty"`
	PodName      string `json:"podName,omitempty"`
	PodUID       string `json:"podUID,omitempty"`
	// Machine is the name of the KubeVirt virtual machine that the pod runs, in its namespace.
	Machine string `json:"machine,omitempty"`
	Phase   Phase  `json:"phase"`
	// Released is the time at which the phase became Releasing.
	Released time.Time `json:"released,omitzero"`
	// Session in which the entry was written: "<Node UID>/<boot ID>".
	Session string `json:"session,omitempty"`
	// Slot of the guard, 0 if there is no guard.
	Slot uint32 `json:"slot,omitempty"`
	// Mute: the slot was killed under a running pod. The pod is to be deleted if Kubernetes still
	// wants it.
	Mute bool `json:"mute,omitempty"`
	// Parent is the name, and ParentIndex the ifindex, that the parent had at ADD.
	Parent      string `json:"parent,omitempty"`
	ParentIndex int    `json:"parentIndex,omitempty"`
	MAC         string `json:"mac,omitempty"`
	// Device is the PCI address of the interface if it is a VF (SR-IOV).
	Device string `json:"device,omitempty"`
	// Unguarded: a program of the pod drives the VF itself (DPDK), so there is no network interface.
	Unguarded bool `json:"unguarded,omitempty"`
	// Bypasses: the leases say that the guard of the VF alone does not silence it.
	Bypasses bool `json:"bypasses,omitempty"`
	// SharedMAC: a holder of the address on another node may have the same MAC.
	SharedMAC bool `json:"sharedMAC,omitempty"`
	// Settled: the plugins are done with the interface. Its MAC is not followed any more.
	Settled   bool      `json:"settled,omitempty"`
	Created   time.Time `json:"created"`
	Addresses []Address `json:"addresses,omitempty"`
	// Routing is nil until a chained ADD has made host link and routes.
	Routing *Routing `json:"routing,omitempty"`
}

// Routing records what a chained ADD has made for an interface, so that it can be repaired.
type Routing struct {
	// HostLink: there is a host link. First: its routes are those of the whole pod.
	HostLink bool `json:"hostLink,omitempty"`
	First    bool `json:"first,omitempty"`
	// OwnTable: the interface has a routing table of its own.
	OwnTable bool `json:"ownTable,omitempty"`
	// TakesDefault: the pod's default routes lead through this interface, although another network
	// made its first interface.
	TakesDefault bool `json:"takesDefault,omitempty"`
	// Listed are destinations behind the host link, besides the node and the Services.
	Listed     []netip.Prefix `json:"listed,omitempty"`
	TxQueueLen int            `json:"txQueueLen,omitempty"`
	// Subnets are the addresses with the length of their subnets, Gateways those of the subnets.
	Subnets  []netip.Prefix `json:"subnets,omitempty"`
	Gateways []netip.Addr   `json:"gateways,omitempty"`
}

// Address is one address of an interface.
type Address struct {
	Addr      netip.Addr `json:"addr"`
	Pool      string     `json:"pool"`
	Network   string     `json:"network,omitempty"`
	LeaseName string     `json:"leaseName"`
	// LeaseUID and Token are empty until the API server has answered the create.
	LeaseUID string `json:"leaseUID,omitempty"`
	Token    uint64 `json:"token,omitempty"`
	// Behind is nonzero if the pod is the target of a live migration, and the address is fenced
	// here. It is the token of the holder on another node. 0: the address is the pod's.
	Behind uint64 `json:"behind,omitempty"`
	// Unproven: the lease was renewed after a fence, and other speakers are not yet ruled out.
	Unproven bool `json:"unproven,omitempty"`
	// Disproved is the token of a claim without a speaker, as the last renewal has proven. 0: none.
	Disproved uint64 `json:"disproved,omitempty"`
	// DisprovedBefore are the tokens that earlier renewals have disproved, the latest first.
	DisprovedBefore []uint64 `json:"disprovedBefore,omitempty"`
	// Static: DEL retains the address instead of freeing it.
	Static bool `json:"static,omitempty"`
	// Kept: an ADD under way has taken the address over, which is kept for its pod or for the name of it. Its undo
	// keeps the address for the pod, as a DEL does.
	Kept bool `json:"kept,omitempty"`
}

// Attachment returns the key of an entry in the journal.
func (e *Entry) Attachment() agentapi.Attachment {
	return agentapi.Attachment{ContainerID: e.ContainerID, Interface: e.Interface}
}
