package holder

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// stranger is another pod of this node, or another interface of the pod, that
// speaks for an address whose ADD is undone: its record was lost, or the ADD could
// not have had the lease.
func (h *Holders) stranger(e *journal.Entry, address journal.Address) (living journal.Entry, ok bool, err error) {
	key := keyOf(e, address)
	living, _, held := h.Holder(key)
	// An older sandbox of the same interface is none.
	if !held || living.PodNamespace == e.PodNamespace && living.PodName == e.PodName && living.Interface == e.Interface {
		return living, false, nil
	}
	dead, err := h.Kernel.SlotDead(living.Slot)
	if err != nil || dead {
		return living, false, err
	}
	fenced, err := h.Kernel.Fenced(key)
	if err != nil {
		return living, false, fmt.Errorf("see whether %s is fenced: %w", address.Addr, err)
	}
	return living, !fenced, nil
}

// leaveTo sets a lease aside for the pod that speaks for its address, which takes
// it back: to free the lease would end the pod, whose slots are killed first (R4).
func (h *Holders) leaveTo(ctx context.Context, living *journal.Entry, l *v1alpha1.IPLease) error {
	_, err := h.Leases.QuarantineConflict(ctx, l, lease.Evidence{MAC: living.MAC, Source: string(segment.SourceProbe)})
	if errors.Is(err, lease.ErrGone) || errors.Is(err, lease.ErrNotMine) {
		return nil
	}
	return err
}
