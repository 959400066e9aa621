package holder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/session"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// lastBoot is what the leases of this node tell of the time before its last
// boot. Safe for concurrent use.
type lastBoot struct {
	mu sync.Mutex
	// interfaces are those of pods that had an address then.
	interfaces map[podInterface]bool
	// done tells that no lease of that time is left to be set aside.
	done bool
}

type podInterface struct{ podUID, ifname string }

// has tells whether an interface of a pod had an address before the last boot.
func (b *lastBoot) has(podUID, ifname string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.interfaces[podInterface{podUID, ifname}]
}

func (b *lastBoot) add(holder *v1alpha1.Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.interfaces == nil {
		b.interfaces = map[podInterface]bool{}
	}
	b.interfaces[podInterface{holder.PodUID, holder.Interface}] = true
}

// setAsideLastBoot sets aside what is Bound to pods of this node from before its
// last boot and has no entry in the journal, which may have lost its last
// entries with the power. Their pods ended with the boot; only a verification
// frees the addresses (R8). It asks the cache, and decides by what the write meets.
func (h *Holders) setAsideLastBoot(ctx context.Context) error {
	if h.lastBoot.done {
		return nil
	}
	leases := &v1alpha1.IPLeaseList{}
	if err := h.Cache.List(ctx, leases); err != nil {
		return fmt.Errorf("list the leases of this node: %w", err)
	}
	var errs []error
	for i := range leases.Items {
		l := &leases.Items[i]
		if !h.isOfLastBoot(&l.Spec) {
			continue
		}
		h.lastBoot.add(l.Spec.Holder)
		e, _ := h.Journal.Get(l.Spec.Holder.ContainerID, l.Spec.Holder.Interface)
		if slices.ContainsFunc(e.Addresses, func(a journal.Address) bool { return a.LeaseName == l.Name }) {
			continue // its entry is released
		}
		_, err := h.Leases.Quarantine(ctx, l, v1alpha1.ReasonPodGone, "bound before the last boot of the node")
		if err != nil && !errors.Is(err, lease.ErrGone) && !errors.Is(err, lease.ErrNotMine) {
			errs = append(errs, err)
		}
	}
	h.lastBoot.done = len(errs) == 0
	return errors.Join(errs...)
}

// isOfLastBoot tells whether a lease is bound to a pod that ended with the last
// boot of this node.
func (h *Holders) isOfLastBoot(s *v1alpha1.IPLeaseSpec) bool {
	return s.State == v1alpha1.StateBound && s.NodeName == h.Node && s.Holder != nil &&
		!session.SameBoot(s.Session, h.Session)
}
