// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/node"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// Interface is a pod's interface while an ADD works on it: its guard, its MAC and its intent on disk.
type Interface struct {
	h       *release.Releaser
	Request agentapi.AddRequest
	Who     v1alpha1.Holder
	Link    pod.Interface
	Seg     node.Segment
	// Won are the addresses that the interface has so far, in the order of the families.
	Won []Bound
	// Trying is the address of the present family that the ADD tries. A lease of it may exist.
	Trying *attachment.Address
	// Slot of the guard; 0 before the first intent.
	Slot uint32
	// Replaced are the dead slots that an earlier ADD and earlier tries have left on the interface.
	// They keep it mute until the next guard enforces.
	Replaced []uint32

	created time.Time
	// made is the MAC that the plugin gave the interface.
	made net.HardwareAddr
	// sharedMAC: a holder on another node may have the same MAC.
	sharedMAC bool
	// staging receives the result of attaching the guard. guarded is true once the guard enforces.
	staging <-chan error
	guarded bool
}

// NewInterface returns the interface of an ADD that begins now.
func NewInterface(h *release.Releaser, r agentapi.AddRequest, pod *corev1.Pod) *Interface {
	return &Interface{h: h, Request: r, Who: node.Of(pod, r.Attachment, ""), created: h.Clock.Now()}
}

// Found notes the interface as its plugin has made it.
func (a *Interface) Found(link pod.Interface, seg node.Segment) {
	a.Link, a.Seg, a.made = link, seg, link.MAC
	a.Who.MAC = link.MAC.String()
}

// Bound is an address with the pool it came from.
type Bound struct {
	Pool    *v1alpha1.IPPool
	Address attachment.Address
	// Since is when the write of the lease began.
	Since time.Time
	// Unclaimed is the claim to send after the answer.
	Unclaimed *segment.Claim
}

// Entry is the journal's record of the ADD.
func (a *Interface) Entry(phase attachment.Phase) attachment.Entry {
	e := attachment.Entry{
		ContainerID: a.Request.ContainerID, Interface: a.Request.Interface, Index: a.Link.Index,
		NetNS: a.Request.NetNS, Network: a.Request.Network.Name,
		PodNamespace: a.Who.Namespace, PodName: a.Who.Pod, PodUID: a.Who.PodUID, Machine: owner.MachineOf(&a.Who),
		Phase: phase, Session: a.h.Session, Slot: a.Slot, Created: a.created,
		Parent: a.Link.Parent.Name, ParentIndex: a.Link.Parent.Index, MAC: a.Who.MAC, SharedMAC: a.sharedMAC,
		Device: a.Link.Device, Unguarded: a.Link.Unguarded, Settled: a.Link.Unguarded,
	}
	for _, b := range a.Won {
		e.Addresses = append(e.Addresses, b.Address)
	}
	if a.Trying != nil {
		e.Addresses = append(e.Addresses, *a.Trying)
	}
	return e
}

// leased records the lease of the address that is being tried.
func (a *Interface) leased(l *v1alpha1.IPLease) error {
	token, err := lease.Token(l)
	if err != nil {
		return err
	}
	a.Trying.LeaseUID, a.Trying.Token = string(l.UID), token
	return nil
}
