package holder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Stray tells whether a lease is bound here to a container whose entry does not
// know it: the write was given up, and came to pass after the undo had looked.
func (h *Holders) Stray(l *v1alpha1.IPLease) bool {
	s := &l.Spec
	if s.State != v1alpha1.StateBound || s.NodeName != h.Node || s.Session != h.Session || s.Holder == nil {
		return false
	}
	e, _ := h.Journal.Get(s.Holder.ContainerID, s.Holder.Interface)
	return !slices.ContainsFunc(e.Addresses, func(a journal.Address) bool { return a.LeaseName == l.Name })
}

// freeStrays frees what is bound to an attachment without an entry. The caller
// has locked the attachment, so that no ADD is on its way. The cache proposes, a
// live read decides.
func (h *Holders) freeStrays(ctx context.Context, a attachment) error {
	all := &v1alpha1.IPLeaseList{}
	if err := h.Client.List(ctx, all); err != nil {
		return fmt.Errorf("list the leases of this node: %w", err)
	}
	var errs []error
	for i := range all.Items {
		l := &all.Items[i]
		if h.Stray(l) && l.Spec.Holder.ContainerID == a.containerID && l.Spec.Holder.Interface == a.ifname {
			errs = append(errs, h.freeStray(ctx, l.Name))
		}
	}
	return errors.Join(errs...)
}

func (h *Holders) freeStray(ctx context.Context, name string) error {
	l, err := h.Leases.Get(ctx, name)
	if errors.Is(err, lease.ErrGone) {
		return nil
	}
	if err != nil || !h.Stray(l) {
		return err
	}
	speaks, err := h.speaks(l)
	if err != nil || speaks {
		// A pod whose entry was damaged keeps its address until it is deleted.
		return err
	}
	address := journal.Address{Pool: l.Spec.Pool, LeaseName: name, Static: keepsItsName(l.Spec.Holder)}
	if _, address.Addr, err = v1alpha1.ParseLeaseName(name); err != nil {
		return err
	}
	if err := h.killSpeakers(l, 0); err != nil {
		return err
	}
	what, why, err := h.end(ctx, l, address)
	if err != nil && !errors.Is(err, lease.ErrGone) && !errors.Is(err, lease.ErrNotMine) {
		return err
	}
	holder := l.Spec.Holder
	h.Log.Info("a lease without an entry is ended: its ADD had given it up before it was written", "lease", name, "container", holder.ContainerID)
	h.audit(what, &journal.Entry{PodNamespace: holder.Namespace, PodName: holder.Pod, PodUID: holder.PodUID, MAC: holder.MAC}, address, why)
	h.Allocator.Freed(address.Pool, address.Addr)
	return nil
}

// speaks tells whether the kernel lets the holder of a lease speak for its address.
func (h *Holders) speaks(l *v1alpha1.IPLease) (bool, error) {
	installed, err := h.Kernel.Leases()
	if err != nil {
		return false, fmt.Errorf("read the kernel's leases: %w", err)
	}
	for key, k := range installed {
		if k.Slot != 0 && key.Addr.String() == l.Spec.Address && k.MAC.String() == l.Spec.Holder.MAC {
			return true, nil
		}
	}
	return false, nil
}

// suspectStrays makes pending what the cache shows as stray.
func (h *Holders) suspectStrays(ctx context.Context) {
	all := &v1alpha1.IPLeaseList{}
	if err := h.Client.List(ctx, all); err != nil {
		return // the next look tells
	}
	for i := range all.Items {
		h.suspectStray(&all.Items[i])
	}
}

func (h *Holders) suspectStray(l *v1alpha1.IPLease) {
	if h.Stray(l) {
		h.pending.add(attachment{l.Spec.Holder.ContainerID, l.Spec.Holder.Interface})
	}
}
