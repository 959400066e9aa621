package holder

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

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
	defer h.locks.lock(a)()
	e, ok := h.Journal.Get(a.containerID, a.ifname)
	if !ok {
		return nil
	}
	if err := h.fence(&e); err != nil {
		return err
	}
	if err := h.free(ctx, e); err != nil {
		h.Log.Info("the release is journalled and carried out later",
			"container", e.ContainerID, "interface", e.Interface, "why", err.Error())
		h.poke()
	}
	return nil
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
	what := audit.Free
	switch {
	case l.Spec.Previous != nil:
		what = audit.Reclaim
		_, err = h.Leases.Unverified(ctx, l, "the take-over was given up before the last holder was proven silent")
	case l.Spec.Session != h.Session:
		what = audit.Reclaim
		_, err = h.setAside(ctx, l)
	case address.Static:
		_, err = h.Leases.Retain(ctx, l)
	default:
		err = h.Leases.Delete(ctx, l)
	}
	if err != nil && !errors.Is(err, lease.ErrGone) && !errors.Is(err, lease.ErrNotMine) {
		return err
	}
	if err == nil {
		h.audit(what, e, address, string(e.Phase))
		h.Allocator.Freed(address.Pool, address.Addr)
	}
	return nil
}

// setAside quarantines a lease of another session of this node: only a
// verification may free it (R8).
func (h *Holders) setAside(ctx context.Context, l *v1alpha1.IPLease) (*v1alpha1.IPLease, error) {
	return h.Leases.Quarantine(ctx, l, v1alpha1.ReasonPodGone, "bound in an earlier life of the node")
}

// holds tells whether a lease is bound to an entry's container.
func holds(l *v1alpha1.IPLease, node string, e *journal.Entry) bool {
	holder := l.Spec.Holder
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == node &&
		holder != nil && holder.ContainerID == e.ContainerID && holder.Interface == e.Interface
}
