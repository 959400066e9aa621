// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// Phase is the progress of an ADD or a DEL.
type Phase string

// The phases. An ADD writes Intent before it creates the first lease, and Bound before it answers.
// A DEL writes Releasing before it frees a lease. An adoption writes Adopting before it attaches the guard, and
// Bound once the leases are written: an undo must not kill the slot of a pod that runs.
const (
	Intent    Phase = "Intent"
	Adopting  Phase = "Adopting"
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
	// Taken: this node has killed the slot for another holder of an address, or for its verification. The
	// addresses do not move to a newer sandbox. It stays set.
	Taken bool `json:"taken,omitempty"`
	// Parent is the name, and ParentIndex the ifindex, that the parent had at ADD.
	Parent      string `json:"parent,omitempty"`
	ParentIndex int    `json:"parentIndex,omitempty"`
	MAC         string `json:"mac,omitempty"`
	// NodeEnd is the ifindex of the other end of a veth on a bridge, where the guard is. 0: other interfaces.
	NodeEnd int `json:"nodeEnd,omitempty"`
	// Device is the PCI address of the interface if it is a VF (SR-IOV).
	Device string `json:"device,omitempty"`
	// Unguarded: a program of the pod drives the VF itself (DPDK), so there is no network interface.
	Unguarded bool `json:"unguarded,omitempty"`
	// Bypasses: the leases say that the guard of the VF alone does not silence it.
	Bypasses bool `json:"bypasses,omitempty"`
	// SharedMAC: a holder of the address on another node may have the same MAC.
	SharedMAC bool `json:"sharedMAC,omitempty"`
	// Adopted: another IPAM gave the addresses, and an adoption has guarded the running pod. The runtime may know
	// the sandbox by another ID, and may send no DEL.
	Adopted bool `json:"adopted,omitempty"`
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
	// Waits: the address is the pod's, and fenced here as long as another one of the interface is behind: the
	// interface has the MAC of a machine that runs elsewhere.
	Waits bool `json:"waits,omitempty"`
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
	// Unfreed: since its DEL, no write that frees the lease has begun, so the pod still has the address.
	Unfreed bool `json:"unfreed,omitempty"`
	// Moved is the time at which the address moved here from an older sandbox of the pod, while the API
	// server was away. It is zero once the lease names this sandbox.
	Moved time.Time `json:"moved,omitzero"`
	// Given is nil in entries of earlier versions.
	Given *Given `json:"given,omitempty"`
}

// Given is what an ADD has answered with an address, and the settings of its pool that a next sandbox of
// the pod needs while the API server is away.
type Given struct {
	IP     agentapi.IP      `json:"ip"`
	Routes []agentapi.Route `json:"routes,omitempty"`
	// Pool has the settings of the pool that outlive the ADD.
	Pool v1alpha1.IPPoolSpec `json:"pool"`
}

// GivenBy returns the record of an address of a pool.
func GivenBy(pool *v1alpha1.IPPool, addr netip.Prefix, routes []agentapi.Route) *Given {
	s := pool.Spec
	return &Given{
		IP: agentapi.IP{Address: addr, Gateway: pool.Gateway()}, Routes: routes,
		Pool: v1alpha1.IPPoolSpec{
			Subnet: s.Subnet, ConflictDetection: s.ConflictDetection, SourceGuard: s.SourceGuard,
			SourceGuardAllow: s.SourceGuardAllow, RouterAdvertisements: s.RouterAdvertisements,
		},
	}
}

// PoolThen returns the pool of an address with its settings at the ADD. An entry of an earlier version has
// the defaults, which are the strictest.
func (a *Address) PoolThen() *v1alpha1.IPPool {
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: a.Pool}}
	if a.Given != nil {
		p.Spec = a.Given.Pool
	}
	p.Spec.Network = a.Network
	return p
}

// IsStandby reports whether an address of an entry is behind.
func (e *Entry) IsStandby() bool {
	return slices.ContainsFunc(e.Addresses, func(a Address) bool { return a.Behind != 0 })
}

// HasMoved reports whether a lease of an address may still name an older sandbox.
func (e *Entry) HasMoved() bool {
	return slices.ContainsFunc(e.Addresses, func(a Address) bool { return !a.Moved.IsZero() })
}

// Lease returns the address of an entry by the name of its lease.
func (e *Entry) Lease(name string) (a Address, ok bool) {
	i := slices.IndexFunc(e.Addresses, func(a Address) bool { return a.LeaseName == name })
	if i < 0 {
		return a, false
	}
	return e.Addresses[i], true
}

// HardwareAddr returns the MAC of an entry.
func (e *Entry) HardwareAddr() (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(e.MAC)
	if err != nil {
		return nil, fmt.Errorf("recorded MAC: %w", err)
	}
	return mac, nil
}

// Attachment returns the key of an entry in the journal.
func (e *Entry) Attachment() agentapi.Attachment {
	return agentapi.Attachment{ContainerID: e.ContainerID, Interface: e.Interface}
}
