package holder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// askTimeout bounds how long a DEL, or a try of the worker, waits for the
// API server: a connection that went dead without a word blocks for much longer.
const askTimeout = 5 * time.Second

// Del fences and frees what an attachment holds. It returns nil once the
// release is on disk: with the API server away the worker carries it out later.
func (h *Holders) Del(ctx context.Context, r agentapi.DelRequest) error {
	if r.Chained {
		return nil // the IPAM DEL of the same interface does the work
	}
	return h.letGo(ctx, attachment{r.ContainerID, r.Interface})
}

// letGo releases an attachment, now or later.
func (h *Holders) letGo(ctx context.Context, a attachment) error {
	defer h.attachments.lock(a)()
	h.unanswered.take(a)
	e, ok := h.Journal.Get(a.containerID, a.ifname)
	if !ok {
		return nil
	}
	if err := h.fence(&e); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := h.free(ctx, e); err != nil {
		h.later(a, "release", err)
	}
	return nil
}

// later leaves to the worker what is journalled and cannot be done now.
func (h *Holders) later(a attachment, what string, err error) {
	h.Log.Info(what+" is journalled and carried out later",
		"container", a.containerID, "interface", a.ifname, "why", err.Error())
	h.pending.add(a)
}

// release fences an entry and frees its leases.
func (h *Holders) release(ctx context.Context, e journal.Entry) error {
	if err := h.fence(&e); err != nil {
		return err
	}
	return h.free(ctx, e)
}

// fence kills the entry's slot and writes down that it is to be freed, in this
// order: an address is never free while its holder can speak (R6).
func (h *Holders) fence(e *journal.Entry) error {
	if e.Slot != 0 {
		if err := h.Kernel.KillSlot(e.Slot); err != nil {
			return fmt.Errorf("kill slot %d of container %s: %w", e.Slot, e.ContainerID, err)
		}
	}
	if e.Phase == journal.Bound {
		e.Phase = journal.Releasing
		return h.Journal.Put(*e)
	}
	return nil
}

// free ends the leases of a fenced entry and forgets it. What cannot be ended
// now stays in the journal.
func (h *Holders) free(ctx context.Context, e journal.Entry) error {
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
	if err := h.Journal.Remove(e.ContainerID, e.Interface); err != nil {
		return err
	}
	if e.Slot != 0 {
		h.slots.leave(e.Slot)
	}
	return nil
}

// freeAddress ends one lease: deleted, Retained for a pod that keeps its name,
// or set aside where a take-over was never proven. A lease that is somebody
// else's by now is none of ours to end.
func (h *Holders) freeAddress(ctx context.Context, e *journal.Entry, address journal.Address) error {
	l, err := h.Leases.Get(ctx, address.LeaseName)
	switch {
	case errors.Is(err, lease.ErrGone):
		return nil
	case err != nil:
		return err
	case !holds(l, h.Node, e):
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
		// A crash may have come between the take-over's write and the end of an
		// older sandbox, which would speak on for an address that is free.
		if err := h.killSpeakers(l, 0); err != nil {
			return err
		}
	}
	what, why, err := h.end(ctx, l, address)
	if errors.Is(err, lease.ErrGone) || errors.Is(err, lease.ErrNotMine) {
		return nil
	}
	if err != nil {
		return err
	}
	h.audit(what, e, address, why)
	h.Allocator.Freed(address.Pool, address.Addr)
	return nil
}

// end writes the end of a lease whose holder is fenced, and returns what that
// means for the audit.
func (h *Holders) end(ctx context.Context, l *v1alpha1.IPLease, address journal.Address) (what audit.Kind, why string, err error) {
	if h.isOfLastBoot(&l.Spec) {
		// From here on neither the journal nor a Bound lease tells the next sandbox of it.
		h.lastBoot.add(l.Spec.Holder)
	}
	switch {
	case l.Spec.Previous != nil:
		why = "the take-over was given up before the last holder was proven silent"
		_, err = h.Leases.Unverified(ctx, l, why)
		return audit.Reclaim, why, err
	case l.Spec.Session != h.Session:
		// Only a verification may free what another session has bound (R8).
		why = "bound in an earlier life of the node"
		_, err = h.Leases.Quarantine(ctx, l, v1alpha1.ReasonPodGone, why)
		return audit.Reclaim, why, err
	case address.Static:
		_, err = h.Leases.Retain(ctx, l)
		return audit.Free, "retained for its name", err
	}
	return audit.Free, "released", h.Leases.Delete(ctx, l)
}

// holds tells whether a lease is bound to an entry's container.
func holds(l *v1alpha1.IPLease, node string, e *journal.Entry) bool {
	holder := l.Spec.Holder
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == node &&
		holder != nil && holder.ContainerID == e.ContainerID && holder.Interface == e.Interface
}
