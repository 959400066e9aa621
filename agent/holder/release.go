// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/audit"
)

// errEntryStays: the leases of an entry are freed, and a read-only disk keeps the entry.
var errEntryStays = errors.New("the entry stays in the journal")

// Del fences and frees the addresses of an attachment. It returns nil once the release is on disk:
// if the API server is unreachable, the worker carries it out later.
func (h *Holders) Del(ctx context.Context, r agentapi.DelRequest) error {
	if r.Chained {
		return nil // the IPAM DEL of the same interface does the work
	}
	return h.letGo(ctx, r.Attachment)
}

// letGo releases an attachment, now or later.
func (h *Holders) letGo(ctx context.Context, a agentapi.Attachment) error {
	defer h.LockAttachment(a)()
	h.unanswered.remove(a)
	e, ok := h.Journal.Get(a.ContainerID, a.Interface)
	if !ok {
		return nil
	}
	phase := e.Phase
	fenced := h.Fence(&e)
	if fenced != nil && e.Phase == phase {
		return fenced // the slot could not be killed
	}
	ctx, cancel := context.WithTimeout(ctx, node.AskTimeout)
	defer cancel()
	if fenced == nil && h.Undecided(ctx, &e) {
		h.later(a, "release", errEnding)
		return nil
	}
	err := h.Free(ctx, e)
	if err != nil && fenced != nil && !errors.Is(err, errEntryStays) {
		return errors.Join(fenced, err)
	}
	if err != nil {
		h.later(a, "release", err)
	}
	// A disk that takes no record must not stop a DEL: the leases are freed.
	return nil
}

// later leaves a journalled release to the worker.
func (h *Holders) later(a agentapi.Attachment, what string, err error) {
	h.Log.Info(what+" is journalled and carried out later",
		"container", a.ContainerID, "interface", a.Interface, "why", err.Error())
	h.Pending.Add(a)
}

// Release fences an entry and frees its leases.
func (h *Holders) Release(ctx context.Context, e journal.Entry) error {
	if err := h.Fence(&e); err != nil {
		return err
	}
	return h.Free(ctx, e)
}

// Fence kills the entry's slot and then journals that the entry is to be freed. The
// order matters: an address is never free while its holder can use it (R6).
func (h *Holders) Fence(e *journal.Entry) error {
	if e.Slot != 0 {
		if err := h.Guards.Kill(e); err != nil {
			return err
		}
		if err := h.HostLinks.Remove(e); err != nil {
			// The dead slot drops its frames. Free tries again.
			h.Log.Info("a host link is removed later", "why", err.Error())
			h.HostLinks.Wake(e.Attachment())
		}
	}
	if e.Phase == journal.Bound {
		e.Phase, e.Released = journal.Releasing, h.Clock.Now().Round(0)
		return h.Journal.Put(*e)
	}
	return nil
}

// Free ends the leases of a fenced entry and removes the entry. Leases that cannot be
// ended now stay in the journal.
func (h *Holders) Free(ctx context.Context, e journal.Entry) error {
	var errs []error
	var left []journal.Address
	for _, address := range e.Addresses {
		if err := h.freeAddress(ctx, &e, address); err != nil {
			errs = append(errs, fmt.Errorf("free %s of container %s: %w", address.Addr, e.ContainerID, err))
			left = append(left, address)
		}
	}
	if len(left) > 0 {
		e.Addresses = left
		return errors.Join(append(errs, h.Journal.Put(e))...)
	}
	// Without the entry nobody would look for the link.
	if err := h.HostLinks.Remove(&e); err != nil {
		return err
	}
	if h.VFs != nil {
		if err := h.VFs.Release(&e); err != nil {
			return err
		}
	}
	if err := h.Journal.Remove(e.ContainerID, e.Interface); err != nil {
		return fmt.Errorf("%w: %w", errEntryStays, err)
	}
	if e.Slot != 0 {
		h.Guards.Leave(e.Slot)
	}
	return nil
}

// freeAddress ends one lease: it deletes the lease, retains it for a pod that keeps its
// name, or quarantines it if a take-over was never proven. A lease that has another
// holder by now is left alone.
func (h *Holders) freeAddress(ctx context.Context, e *journal.Entry, address journal.Address) error {
	l, err := h.Leases.Get(ctx, address.LeaseName)
	switch {
	case errors.Is(err, lease.ErrGone):
		return nil
	case err != nil:
		return err
	case !Holds(l, h.Node, e):
		return nil
	}
	if e.Phase == journal.Intent {
		living, ok, err := h.stranger(e, address)
		if err != nil {
			return err
		}
		if ok {
			return h.leaveTo(ctx, &living, l)
		}
		// The agent may have died between the write of a take-over and the kill of an
		// older sandbox. That sandbox would go on using a free address.
		if err := h.killSpeakers(l, 0); err != nil {
			return err
		}
	}
	return h.End(ctx, l, e, address)
}

// End ends a lease whose holder is fenced. A lease that is gone, or has another
// holder by now, is left alone.
func (h *Holders) End(ctx context.Context, l *v1alpha1.IPLease, e *journal.Entry, address journal.Address) error {
	what, why, err := h.end(ctx, l, e, address)
	if errors.Is(err, lease.ErrGone) || errors.Is(err, lease.ErrNotMine) {
		return nil
	}
	if err != nil {
		return err
	}
	h.Audit(what, e, address, why)
	h.Allocator.Freed(address.Pool, address.Addr)
	return nil
}

// end writes the end of a lease whose holder is fenced. It returns the audit's kind
// and reason.
func (h *Holders) end(ctx context.Context, l *v1alpha1.IPLease, e *journal.Entry, address journal.Address) (what audit.Kind, why string, err error) {
	if h.IsOfLastBoot(&l.Spec) {
		h.Expect(l.Spec.Holder)
	}
	switch {
	case l.Spec.Previous != nil:
		why = "the take-over was cancelled before the last holder was proven silent"
		_, err = h.Leases.Unverified(ctx, l, why)
		return audit.Reclaim, why, err
	case l.Spec.Session != h.Session:
		// Only a verification may free what another session has bound (R8).
		why = "bound in an earlier life of the node"
		_, err = h.Leases.Quarantine(ctx, l, v1alpha1.ReasonNodeRestarted, why)
		return audit.Reclaim, why, err
	case address.Static:
		_, err = h.Leases.Retain(ctx, l)
		return audit.Free, "retained for its name", err
	}
	if isProven(e, address) && h.mayReturn(ctx, e) && h.ending(ctx, e) != endOfInterface {
		h.Expect(l.Spec.Holder)
		_, err = h.Leases.KeepForPod(ctx, l)
		return audit.Free, "kept for the next sandbox of its pod", err
	}
	return audit.Free, "released", h.Leases.Delete(ctx, l)
}

// Holds reports whether a lease is bound to an entry's container.
func Holds(l *v1alpha1.IPLease, node string, e *journal.Entry) bool {
	holder := l.Spec.Holder
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == node &&
		holder != nil && holder.ContainerID == e.ContainerID && holder.Interface == e.Interface
}
