// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/allocate/waiting"
	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// adding is one ADD.
type adding struct {
	h       *Holders
	request agentapi.AddRequest
	queued  *queued
	created time.Time
	pod     *corev1.Pod
	link    node.Link
	seg     node.Segment
	who     v1alpha1.Holder
	// made is the MAC that the plugin gave the interface.
	made net.HardwareAddr
	// sharedMAC: a holder on another node may have the same MAC.
	sharedMAC bool
	// asked is the request of the pod's annotations for an address that stays with its name.
	asked v1alpha1.FixedAddress
	// slot of the guard; 0 before the first intent.
	slot uint32
	// staging receives the result of attaching the guard. guarded is true once the guard enforces.
	staging <-chan error
	guarded bool
	// gateways receive the results of the checks of gateways, by pool.
	gateways map[string]<-chan error
	// bound are the addresses that the interface has so far, in the order of the families.
	bound []boundAddress
	// full are the pools of the family for which there was no address.
	full []ipam.Candidate
	// trying is the address of the present family that the ADD tries. A lease of it may exist.
	trying *journal.Address
}

// boundAddress is an address with the pool it came from.
type boundAddress struct {
	pool    *v1alpha1.IPPool
	address journal.Address
	// unclaimed is the claim to send after the answer.
	unclaimed *segment.Claim
}

// entry is the journal's record of the ADD.
func (a *adding) entry(phase journal.Phase) journal.Entry {
	e := journal.Entry{
		ContainerID: a.request.ContainerID, Interface: a.request.Interface,
		NetNS: a.request.NetNS, Network: a.request.Network.Name,
		PodNamespace: a.who.Namespace, PodName: a.who.Pod, PodUID: a.who.PodUID, Machine: owner.MachineOf(&a.who),
		Phase: phase, Session: a.h.Session, Slot: a.slot, Created: a.created,
		Parent: a.link.Parent, ParentIndex: a.link.ParentIndex, MAC: a.who.MAC, SharedMAC: a.sharedMAC,
		Device: a.link.Device,
	}
	for _, b := range a.bound {
		e.Addresses = append(e.Addresses, b.address)
	}
	if a.trying != nil {
		e.Addresses = append(e.Addresses, *a.trying)
	}
	return e
}

// leased records the lease of the address that is being tried.
func (a *adding) leased(l *v1alpha1.IPLease) error {
	token, err := lease.Token(l)
	if err != nil {
		return err
	}
	a.trying.LeaseUID, a.trying.Token = string(l.UID), token
	return nil
}

// queued is an ADD with its place in the queue for full pools.
type queued struct {
	h       *Holders
	request agentapi.AddRequest
	place   *waiting.Place
	// offer is the address that came free, for the next try.
	offer waiting.Offer
	// until is the end of the wait; zero before it begins.
	until time.Time
	// told are the reasons that events of the pod have told.
	told []string
	// warned reports that events of the pod have told its wishes that have no effect.
	warned bool
	// replaced are the dead slots that an earlier ADD and earlier tries have left on the interface. They
	// keep it mute until the next guard enforces.
	replaced []uint32
	// application is the application of the pod, once it was read.
	application *v1alpha1.Application
}

// unanswered are the ADDs that have succeeded and whose answer is being sent.
// Safe for concurrent use.
type unanswered struct {
	mu  sync.Mutex
	all map[agentapi.Attachment]*adding
}

func (u *unanswered) put(a *adding) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = map[agentapi.Attachment]*adding{}
	}
	u.all[a.request.Attachment] = a
}

// remove returns an ADD once, or nil.
func (u *unanswered) remove(a agentapi.Attachment) *adding {
	u.mu.Lock()
	defer u.mu.Unlock()
	add := u.all[a]
	delete(u.all, a)
	return add
}
