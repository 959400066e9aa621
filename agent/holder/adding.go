// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/owner"
)

// adding is one ADD.
type adding struct {
	h       *Holders
	request agentapi.AddRequest
	queued  *queued
	created time.Time
	pod     *corev1.Pod
	link    Link
	seg     Segment
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

// record journals that the interface holds its addresses.
func (a *adding) record() error {
	// From here on, a DEL keeps the address for the pod's name. Before this point it must not: the
	// next ADD of a Retained address claims before it probes, so the address must be proven.
	for i := range a.bound {
		a.bound[i].address.Static = a.keeps(a.bound[i].pool)
	}
	e := a.entry(journal.Bound)
	// The plugin sets the interface up after the answer.
	for _, b := range a.bound {
		if err := a.h.Guards.Install(&e, b.address); err != nil {
			return err
		}
	}
	if err := a.h.guardSources(&e); err != nil {
		return err
	}
	if err := a.h.Journal.Put(e); err != nil {
		return err
	}
	a.h.expected.forget(a.who.PodUID, a.who.Interface)
	a.h.wakeVFs(&e)
	for _, b := range a.bound {
		if b.address.Behind != 0 {
			a.h.Pending.Add(e.Attachment())
			continue
		}
		a.h.Audit(audit.Grant, &e, b.address, "")
	}
	return nil
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
