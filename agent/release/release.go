// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/proof"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/audit"
)

// HostLinks are the host links of pods. *hostlink.Links implements it.
type HostLinks interface {
	// Remove removes the host link of an entry.
	Remove(*attachment.Entry) error
	// Wake repairs the routing of an attachment soon.
	Wake(agentapi.Attachment)
}

// VFs keeps the settings that PFs enforce on their virtual functions. *vf.Keeper implements it.
type VFs interface {
	// SwitchOff switches off the VF of an entry that only its PF can silence. It returns nil once the PF
	// confirms it.
	SwitchOff(*attachment.Entry) error
	// Release ends these settings for an entry that is to be removed.
	Release(*attachment.Entry) error
}

// Options of a Releaser. All are required.
type Options struct {
	// Self is this node.
	Self proof.Node
	// Cache reads from the agent's filtered caches, Reader past them.
	Cache, Reader client.Reader
	Leases        *lease.Store
	Attachments   *attachment.Table
	Guards        *guards.Guards
	HostLinks     HostLinks
	VFs           VFs
	// FindLink finds a pod's interface in its network namespace.
	FindLink func(netns, ifname string) (pod.Interface, error)
	// Freed is told that an address of a pool has no lease any more.
	Freed func(pool string, addr netip.Addr)
	Log   logr.Logger
	Clock clock.Clock
}

// Releaser releases the addresses of attachments. Its methods may be called concurrently.
type Releaser struct {
	Options
	// Expected has the interfaces whose next sandbox may get the address of an earlier one.
	Expected Expected
}

// New returns a Releaser.
func New(o Options) *Releaser {
	return &Releaser{Options: o, Expected: Expected{lru.New(mostExpected)}}
}

// patience bounds how long a DEL waits for the API server. The runtime makes the next sandbox of a pod only
// after it, and the worker carries out what is left.
const patience = time.Second

// errUnread: nothing was written, since the lease could not be read.
var errUnread = errors.New("its lease stays as it is")

// errEntryStays: the leases are freed, but the disk does not record the removal of the entry.
var errEntryStays = errors.New("the entry stays in the journal")

// LetGo releases an attachment, now or later. The caller has locked it.
func (r *Releaser) LetGo(ctx context.Context, a agentapi.Attachment) error {
	e, ok := r.Attachments.Get(a.ContainerID, a.Interface)
	if !ok {
		return nil
	}
	phase := e.Phase
	fenced := r.Fence(&e)
	if fenced != nil && e.Phase == phase {
		return fenced // the slot could not be killed
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if fenced == nil && r.Undecided(ctx, &e) {
		r.Later(a, "release", errors.Join(errEnding, setUnfreed(r.Attachments, &e, true)))
		return nil
	}
	err := r.Free(ctx, e)
	if err != nil && fenced != nil && !errors.Is(err, errEntryStays) {
		return errors.Join(fenced, err)
	}
	if err != nil {
		r.Later(a, "release", err)
	}
	// A disk that takes no record must not stop a DEL: the leases are freed.
	return nil
}

// Later leaves a journalled release to the worker.
func (r *Releaser) Later(a agentapi.Attachment, what string, err error) {
	r.Log.Info(what+" is journalled and carried out later",
		"container", a.ContainerID, "interface", a.Interface, "why", err.Error())
	r.Attachments.Pending.Add(a)
}

// Release fences an entry and frees its leases.
func (r *Releaser) Release(ctx context.Context, e attachment.Entry) error {
	if err := r.Fence(&e); err != nil {
		return err
	}
	return r.Free(ctx, e)
}

// Fence kills the entry's slot and then journals that the entry is to be freed. The
// order matters: an address is never free while its holder can use it (R6). Without
// a guard, the program that used the VF has ended before the DEL, or has never begun.
func (r *Releaser) Fence(e *attachment.Entry) error {
	if e.Unguarded {
		for _, address := range e.Addresses {
			if err := r.Guards.Leases.Uninstall(e.ParentIndex, address.Addr, e.Slot); err != nil {
				return err
			}
		}
	} else if e.Slot != 0 {
		if err := r.Guards.KillSlot(e); err != nil {
			return err
		}
		if err := r.HostLinks.Remove(e); err != nil {
			// The dead slot drops its frames. Free tries again.
			r.Log.Info("a host link is removed later", "why", err.Error())
			r.HostLinks.Wake(e.Attachment())
		}
	}
	if e.Phase == attachment.Bound || e.Phase == attachment.Adopting {
		e.Phase, e.Released = attachment.Releasing, r.Clock.Now().Round(0)
		return r.Attachments.Put(*e)
	}
	return nil
}

// Free ends the leases of a fenced entry and removes it. Leases that fail stay in the journal.
func (r *Releaser) Free(ctx context.Context, e attachment.Entry) error {
	var errs []error
	var left []attachment.Address
	for i, address := range e.Addresses {
		if err := r.freeAddress(ctx, &e, address, 0); err != nil {
			errs = append(errs, fmt.Errorf("free %s of container %s: %w", address.Addr, e.ContainerID, err))
			at := e.Addresses[i]
			at.Unfreed = at.Unfreed || errors.Is(err, errUnread)
			left = append(left, at)
		}
	}
	if len(left) > 0 {
		for i := range left { // a next sandbox gets all its addresses or none
			left[i].Unfreed = left[i].Unfreed && len(left) == len(e.Addresses)
		}
		e.Addresses = left
		return errors.Join(append(errs, r.Attachments.Put(e))...)
	}
	// Without the entry, nothing would remove the link later.
	if err := r.HostLinks.Remove(&e); err != nil {
		return err
	}
	if err := r.VFs.Release(&e); err != nil {
		return err
	}
	if err := r.Attachments.Remove(e.ContainerID, e.Interface); err != nil {
		return fmt.Errorf("%w: %w", errEntryStays, err)
	}
	if slices.ContainsFunc(e.Addresses, func(a attachment.Address) bool { return a.Token == 0 && a.Behind == 0 }) {
		r.Attachments.Pending.Add(e.Attachment()) // the write may still come true: the worker looks for its lease
	}
	if e.Slot != 0 {
		r.Guards.Slots.Leave(e.Slot)
	}
	return nil
}

// freeAddress ends one lease: it deletes the lease, retains it for a pod that keeps its
// name, or quarantines it if a take-over was never proven. A lease that has another
// holder by now is left alone. own is the slot that lives on, 0 if there is none.
func (r *Releaser) freeAddress(ctx context.Context, e *attachment.Entry, address attachment.Address, own uint32) error {
	if r.hasMoved(e, address) {
		return nil // the store may not know that yet
	}
	l, err := r.Leases.Get(ctx, address.LeaseName)
	switch {
	case errors.Is(err, lease.ErrGone):
		return nil
	case err != nil && e.Phase == attachment.Releasing:
		return fmt.Errorf("%w: %w", errUnread, err)
	case err != nil:
		return err
	case !Holds(l, r.Self.Name, e):
		return nil
	}
	// The lease may end from now on, whether or not the answer of that write arrives.
	if address.Unfreed {
		if err := setUnfreed(r.Attachments, e, false, address.LeaseName); err != nil {
			return err
		}
	}
	if e.Phase == attachment.Intent {
		living, ok, err := r.stranger(e, address)
		if err != nil {
			return err
		}
		if ok {
			return r.leaveTo(ctx, &living, l)
		}
		// The agent may have died between the write of a take-over and the kill of an
		// older sandbox. That sandbox would go on using a free address.
		if err := r.KillSpeakers(l, own); err != nil {
			return err
		}
	}
	return r.End(ctx, l, e, address)
}

// GiveUp frees an address of an ADD that goes on with another one. The kernel forgets the address first,
// so the slot lives on (R6).
func (r *Releaser) GiveUp(ctx context.Context, e *attachment.Entry, address attachment.Address) error {
	if err := r.Guards.Leases.Uninstall(e.ParentIndex, address.Addr, e.Slot); err != nil {
		return err
	}
	return r.freeAddress(ctx, e, address, e.Slot)
}

// End ends a lease whose holder is fenced, unless the lease is gone or has another holder.
func (r *Releaser) End(ctx context.Context, l *v1alpha1.IPLease, e *attachment.Entry, address attachment.Address) error {
	what, why, err := r.end(ctx, l, e, address)
	if errors.Is(err, lease.ErrGone) || errors.Is(err, lease.ErrNotMine) {
		return nil
	}
	if err != nil {
		return err
	}
	audit.Log(r.Log, what, e.Audit(address, r.Self.Name, why))
	r.Freed(address.Pool, address.Addr)
	return nil
}

// end writes the end of a lease whose holder is fenced. It returns the audit's kind and reason.
func (r *Releaser) end(ctx context.Context, l *v1alpha1.IPLease, e *attachment.Entry, address attachment.Address) (what audit.Kind, why string, err error) {
	if lease.IsOfLastBoot(&l.Spec, r.Self.Name, r.Self.Session) {
		r.Expected.Add(l.Spec.Holder)
	}
	switch {
	case l.Spec.Previous != nil:
		why = "the take-over was cancelled before the last holder was proven silent"
		_, err = r.Leases.Update(ctx, l, lease.Unverified(why))
		return audit.Reclaim, why, err
	case l.Spec.Session != r.Self.Session:
		// Only a verification may free an address that another session has bound (R8).
		why = "bound in an earlier life of the node"
		_, err = r.Leases.Update(ctx, l, lease.Quarantine(v1alpha1.ReasonNodeRestarted, why))
		return audit.Reclaim, why, err
	case address.Static:
		_, err = r.Leases.Update(ctx, l, lease.Retain)
		return audit.Free, "retained for its name", err
	}
	if isProven(e, address) && r.podMay(ctx, e, getsSandboxes) && r.ending(ctx, e) != endOfInterface {
		r.Expected.Add(l.Spec.Holder)
		_, err = r.Leases.Update(ctx, l, lease.KeepForPod)
		return audit.Free, "kept for the next sandbox of its pod", err
	}
	return audit.Free, "released", r.Leases.Delete(ctx, l)
}

// Holds reports whether a lease is bound to an entry's container, or to an older sandbox from which its
// address has moved there.
func Holds(l *v1alpha1.IPLease, node string, e *attachment.Entry) bool {
	address, _ := e.Lease(l.Name)
	return IsBoundTo(&l.Spec, node, e) && (isHolder(&l.Spec, e) || !address.Moved.IsZero())
}

// IsBoundTo reports whether a lease is bound to the interface of an entry's pod, in this or another sandbox.
func IsBoundTo(s *v1alpha1.IPLeaseSpec, node string, e *attachment.Entry) bool {
	return s.State == v1alpha1.StateBound && s.NodeName == node && (isHolder(s, e) || isOfPod(s, e))
}

// hasMoved reports whether another sandbox of the pod has an address of an entry by now: a newer one, or any that
// was not ended for another holder while the entry is released, since the clock may have been set back. If the
// lease may still name an older sandbox, an ADD that is under way counts too.
func (r *Releaser) hasMoved(e *attachment.Entry, address attachment.Address) bool {
	return slices.ContainsFunc(r.Attachments.OfPod(e.PodUID), func(o *attachment.Entry) bool {
		_, has := o.Lease(address.LeaseName)
		if !has || o.ContainerID == e.ContainerID || o.Interface != e.Interface || o.Session != e.Session {
			return false
		}
		isNewer := o.Created.After(e.Created)
		return o.Phase == attachment.Bound && (isNewer || e.Phase == attachment.Releasing && !o.Taken) ||
			o.Phase == attachment.Intent && !address.Moved.IsZero()
	})
}

// setUnfreed journals whether a write that frees leases of an entry may have begun: the given ones, or all.
func setUnfreed(t *attachment.Table, e *attachment.Entry, is bool, leases ...string) error {
	e.Addresses = slices.Clone(e.Addresses)
	for i := range e.Addresses {
		if len(leases) == 0 || slices.Contains(leases, e.Addresses[i].LeaseName) {
			e.Addresses[i].Unfreed = is
		}
	}
	return t.Put(*e)
}

// stranger returns another pod or interface of this node that uses the address of an ADD that is
// being undone. Its record was lost; otherwise the ADD could not have got the lease.
func (r *Releaser) stranger(e *attachment.Entry, address attachment.Address) (living attachment.Entry, ok bool, err error) {
	living, _, held := r.Attachments.Holder(e.ParentIndex, address.Addr)
	// An older sandbox of the same interface does not count.
	if !held || living.PodNamespace == e.PodNamespace && living.PodName == e.PodName && living.Interface == e.Interface {
		return living, false, nil
	}
	dead, err := r.Guards.Dead(living.Slot)
	if err != nil || dead {
		return living, false, err
	}
	fenced, err := r.Guards.Leases.Fenced(e, address)
	return living, !fenced, err
}

// leaveTo quarantines a lease for the pod that uses its address; recovery of that pod
// takes the lease back. Freeing the lease would kill the slots of that pod first (R4).
func (r *Releaser) leaveTo(ctx context.Context, living *attachment.Entry, l *v1alpha1.IPLease) error {
	_, err := r.Leases.Update(ctx, l, lease.QuarantineConflict(lease.Evidence{MAC: living.MAC, Source: string(segment.SourceProbe)}))
	if errors.Is(err, lease.ErrGone) || errors.Is(err, lease.ErrNotMine) {
		return nil
	}
	return err
}
