package holder

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// freeWithoutEntry ends leases that are bound here and have no entry in the
// journal. An intent is journalled before each write, and its entry goes once a
// GET has shown that nothing came of it; a write whose answer was lost may
// come true after that. It ends what two calls have seen unchanged. It belongs
// to the worker.
func (h *Holders) freeWithoutEntry(ctx context.Context) error {
	leases := &v1alpha1.IPLeaseList{}
	if err := h.Cache.List(ctx, leases); err != nil {
		return fmt.Errorf("list the leases of this node: %w", err)
	}
	var errs []error
	seen := map[string]string{}
	for i := range leases.Items {
		l := &leases.Items[i]
		if !h.isWithoutEntry(l) {
			continue
		}
		seen[l.Name] = l.ResourceVersion
		if h.withoutEntry[l.Name] == l.ResourceVersion {
			errs = append(errs, h.endWithoutEntry(ctx, l.Name, l.ResourceVersion))
		}
	}
	h.withoutEntry = seen
	return errors.Join(errs...)
}

// isWithoutEntry tells whether a lease was bound here, in this session, for an
// interface that the journal does not know to have the address.
func (h *Holders) isWithoutEntry(l *v1alpha1.IPLease) bool {
	s := &l.Spec
	if s.State != v1alpha1.StateBound || s.NodeName != h.Node || s.Session != h.Session || s.Holder == nil {
		return false
	}
	e, _ := h.Journal.Get(s.Holder.ContainerID, s.Holder.Interface)
	return !slices.ContainsFunc(e.Addresses, func(a journal.Address) bool { return a.LeaseName == l.Name })
}

// endWithoutEntry ends a lease if a GET shows that version, and no slot speaks
// for its address: the entry of a pod that runs may have been damaged.
func (h *Holders) endWithoutEntry(ctx context.Context, name, version string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	l, err := h.Leases.Get(ctx, name)
	if errors.Is(err, lease.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	if l.Spec.Holder == nil {
		return nil
	}
	unlock, ok := h.attachments.tryLock(attachment{l.Spec.Holder.ContainerID, l.Spec.Holder.Interface})
	if !ok {
		return nil // a call of the plugin works on it
	}
	defer unlock()
	if l.ResourceVersion != version || !h.isWithoutEntry(l) {
		return nil
	}
	addr, err := netip.ParseAddr(l.Spec.Address)
	if err != nil {
		return fmt.Errorf("address of lease %s: %w", l.Name, err)
	}
	if speaks, err := h.speaksFor(addr); speaks || err != nil {
		return err
	}
	holder := l.Spec.Holder
	address := journal.Address{Addr: addr, Pool: l.Spec.Pool, LeaseName: l.Name, Static: keepsItsName(holder)}
	what, why, err := h.end(ctx, l, address)
	if errors.Is(err, lease.ErrGone) || errors.Is(err, lease.ErrNotMine) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("free %s, which is bound and in no entry of the journal: %w", addr, err)
	}
	h.audit(what, &journal.Entry{
		PodNamespace: holder.Namespace, PodName: holder.Pod, PodUID: holder.PodUID, MAC: holder.MAC,
	}, address, why)
	h.Allocator.Freed(address.Pool, addr)
	return nil
}

// speaksFor tells whether a slot of this node may speak for an address, on any segment.
func (h *Holders) speaksFor(addr netip.Addr) (bool, error) {
	leases, err := h.Kernel.Leases()
	if err != nil {
		return false, fmt.Errorf("read the kernel's leases: %w", err)
	}
	for key, l := range leases {
		if key.Addr == addr && l.Slot != 0 {
			return true, nil
		}
	}
	return false, nil
}
