// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// Move asks to give the interface of a new sandbox the addresses of an older one of the same pod, without
// the API server.
type Move struct {
	Call    agentapi.AddRequest
	Link    pod.Interface
	Segment Segment
	// From is the entry of the older sandbox. The caller has locked both attachments.
	From attachment.Entry
}

// Move carries out a move. The API server has agreed to this pod (R5), so it is not asked again: the node
// itself knows that the address is the pod's, and that no newer claim was heard. The leases are written
// once the server answers. After an error, all steps but the end of the older sandbox are undone.
func (a *Acquirer) Move(ctx context.Context, m Move) (Result, error) {
	for _, address := range m.From.Addresses {
		defer a.Attachments.Calls.LockLease(address.LeaseName)()
	}
	if err := a.mayMove(ctx, m); err != nil {
		return Result{}, err
	}
	i := newIface(a, Request{Call: m.Call, Link: m.Link, Segment: m.Segment, Holder: v1alpha1.Holder{
		Namespace: m.From.PodNamespace, Pod: m.From.PodName, PodUID: m.From.PodUID, Interface: m.Call.Interface,
		ContainerID: m.Call.ContainerID, MAC: m.Link.MAC.String(),
	}})
	r, err := i.move(ctx, m.From)
	if err != nil {
		i.undo()
		for _, address := range m.From.Addresses {
			// The kernel goes on hearing claims for the older sandbox, so that the next try can begin again.
			err = errors.Join(err, a.Guards.Leases.Install(&m.From, address))
		}
		return Result{}, fmt.Errorf("move %s from container %s of the same pod: %w", addressesOf(&m.From), m.From.ContainerID, err)
	}
	return r, nil
}

func addressesOf(e *attachment.Entry) (all []string) {
	for _, address := range e.Addresses {
		all = append(all, address.Addr.String())
	}
	return all
}

// mayMove returns the reason against a move, or nil.
func (a *Acquirer) mayMove(ctx context.Context, m Move) error {
	f := moveFacts{From: &m.From, Session: a.Self.Session, Parent: m.Link.Parent.Index, Unguarded: m.Link.Unguarded || a.Guards.Alone(&m.From)}
	for _, address := range m.From.Addresses {
		l, installed, err := a.Guards.Leases.Of(&m.From, address)
		if err != nil {
			return err
		}
		f.Unknown = f.Unknown || !installed || l.Token != address.Token
		fenced, err := a.Guards.Leases.Fenced(&m.From, address)
		if err != nil {
			return err
		}
		f.Fenced = f.Fenced || fenced
		last := &v1alpha1.IPLease{}
		switch err := a.Cache.Get(ctx, client.ObjectKey{Name: address.LeaseName}, last); {
		case err == nil && !release.IsBoundTo(&last.Spec, a.Self.Name, &m.From), apierrors.IsNotFound(err):
			f.Lost = true
		}
	}
	if why := f.against(); why != "" {
		return refusal.New(refusal.TryAgain, "%s of the same pod: %s; the address comes back once the API server answers", addressesOf(&m.From), why)
	}
	return nil
}

// moveFacts are the facts about a move.
type moveFacts struct {
	// From is the entry of the older sandbox of the same pod and interface.
	From *attachment.Entry
	// Session of this agent. Parent is the ifindex below the new interface.
	Session string
	Parent  int
	// Unguarded: no guard silences the older sandbox, or the new one.
	Unguarded bool
	// Unknown: the kernel does not have the lease by which the entry holds an address. Fenced: it has heard
	// a newer claim for one.
	Unknown, Fenced bool
	// Lost: the last that this node has seen of a lease is that it is not the pod's.
	Lost bool
}

// against returns the reason against a move, "" if there is none.
func (f moveFacts) against() string {
	e := f.From
	has := func(is func(attachment.Address) bool) bool { return slices.ContainsFunc(e.Addresses, is) }
	switch {
	case e.Session != f.Session:
		return "the node has started anew since, so nobody here knows what was claimed meanwhile"
	case e.Phase == attachment.Intent || e.Phase == attachment.Adopting || len(e.Addresses) == 0:
		return "the older sandbox never had it"
	case e.Phase == attachment.Releasing && has(func(a attachment.Address) bool { return !a.Unfreed }):
		return "a write that frees it may have begun, and its answer was lost"
	case has(func(a attachment.Address) bool { return a.Behind != 0 }):
		return "the source of a live migration has it"
	case has(func(a attachment.Address) bool { return a.Given == nil }):
		return "it was given by an earlier version of the agent, which has not recorded how"
	case e.ParentIndex != f.Parent:
		return "the new interface is on another parent than " + e.Parent
	case f.Unguarded:
		return "no guard can silence the older sandbox"
	case e.Mute || f.Fenced:
		return "a newer claim for it was heard"
	case e.Taken:
		return "it was taken from the older sandbox"
	case f.Lost:
		return "its lease was not the pod's any more when it was last seen"
	case f.Unknown:
		return "the kernel of this node does not hold it for this pod"
	}
	return ""
}

// move carries out the steps. The order is the guarantee: the older sandbox is mute before the new one may
// use the address, and the new one answers only if no newer claim exists (R6, R10).
func (i *iface) move(ctx context.Context, from attachment.Entry) (Result, error) {
	from.Addresses = slices.Clone(from.Addresses)
	for n := range from.Addresses {
		from.Addresses[n].Unfreed = true
	}
	if err := i.a.Releaser.Fence(&from); err != nil {
		return Result{}, err
	}
	if err := i.takeMAC(&from); err != nil {
		return Result{}, err
	}
	if err := i.journal(); err != nil {
		return Result{}, err
	}
	if err := i.guard(); err != nil {
		return Result{}, err
	}
	e := i.entry(attachment.Intent)
	e.Machine, e.Routing, e.Addresses = from.Machine, from.Routing, slices.Clone(from.Addresses)
	now := i.a.Clock.Now().Round(0)
	for n := range e.Addresses {
		e.Addresses[n].Moved, e.Addresses[n].Unfreed = now, false
	}
	if err := i.a.GuardSources(&e); err != nil {
		return Result{}, err
	}
	r := Result{Segment: i.seg, MAC: i.link.MAC}
	for _, address := range e.Addresses {
		if err := i.a.Guards.Leases.Install(&e, address); err != nil {
			return Result{}, err
		}
		err := i.seg.ClaimAndConfirm(ctx, i.a.Self.Claim(address.PoolThen().ConflictMode(), address, nil))
		if errors.Is(err, segment.ErrNoKey) {
			return Result{}, refusal.New(refusal.TryAgain, "this node has no claim key until the API server answers, so no other node could object: %w", err)
		}
		if err != nil {
			return Result{}, err
		}
		r.Won = append(r.Won, Won{Address: address})
	}
	e.Phase = attachment.Bound
	for _, address := range e.Addresses {
		if err := i.a.Guards.Leases.Install(&e, address); err != nil {
			return Result{}, err
		}
	}
	r.Entry = e
	return r, i.put(e)
}

// takeMAC gives the interface the MAC of the older sandbox, if the pool made that of the address.
func (i *iface) takeMAC(from *attachment.Entry) error {
	if !from.SharedMAC || i.link.Device != "" || i.link.Kind == pod.IPVLAN { // these MACs are not the pool's
		return nil
	}
	mac, err := net.ParseMAC(from.MAC)
	if err != nil {
		return fmt.Errorf("recorded MAC: %w", err)
	}
	i.sharedMAC = true
	if err = i.lowerTwins(mac); err == nil {
		err = i.setMAC(mac)
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return refusal.New(refusal.TryAgain, "the interface of the older sandbox has the MAC %s until its DEL: %w", mac, err)
	}
	return err
}
