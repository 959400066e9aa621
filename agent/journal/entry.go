package journal

import (
	"net/netip"
	"time"
)

// Phase is how far an ADD or a DEL has come.
type Phase string

// The phases. An ADD writes Intent before the first lease is created and
// Bound before it answers; a DEL writes Releasing before it frees.
const (
	Intent    Phase = "Intent"
	Bound     Phase = "Bound"
	Releasing Phase = "Releasing"
)

// Entry is one interface of a pod sandbox.
type Entry struct {
	ContainerID string `json:"containerID"`
	Interface   string `json:"interface"`
	NetNS       string `json:"netns,omitempty"`
	// Network is the name in the CNI configuration, for GC.
	Network      string `json:"network,omitempty"`
	PodNamespace string `json:"podNamespace,omitempty"`
	PodName      string `json:"podName,omitempty"`
	PodUID       string `json:"podUID,omitempty"`
	Phase        Phase  `json:"phase"`
	// Session that the entry was written in: "<Node UID>/<boot ID>".
	Session string `json:"session,omitempty"`
	// Slot of the guard, 0 where there is none.
	Slot uint32 `json:"slot,omitempty"`
	// Mute: the slot was killed under a pod that is to be deleted if it is still wanted.
	Mute bool `json:"mute,omitempty"`
	// Parent is the name and ParentIndex the ifindex of the parent at ADD.
	Parent      string    `json:"parent,omitempty"`
	ParentIndex int       `json:"parentIndex,omitempty"`
	MAC         string    `json:"mac,omitempty"`
	Created     time.Time `json:"created"`
	Addresses   []Address `json:"addresses,omitempty"`
}

// Address is one address of an interface.
type Address struct {
	Addr      netip.Addr `json:"addr"`
	Pool      string     `json:"pool"`
	Network   string     `json:"network,omitempty"`
	LeaseName string     `json:"leaseName"`
	// LeaseUID and Token are empty until the create has been answered.
	LeaseUID string `json:"leaseUID,omitempty"`
	Token    uint64 `json:"token,omitempty"`
	// Static addresses are retained, not freed, by DEL.
	Static bool `json:"static,omitempty"`
}
