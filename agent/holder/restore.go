package holder

import (
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/bpf"
)

// Restore takes up what the journal holds after a restart: slots, guards and
// segments. It asks nobody; the leases are resumed by Run. Call it before
// anything verifies or binds. An error tells what could not be taken up, such
// as an interface whose parent has gone; everything else was.
func (h *Holders) Restore() error {
	var errs []error
	known := map[uint32]bool{}
	for _, e := range h.Journal.All() {
		if e.Slot != 0 {
			h.slots.keep(e.Slot)
			known[e.Slot] = true
		}
		if e.Session == h.Session {
			errs = append(errs, h.restore(e))
		}
	}
	leases, err := h.Kernel.Leases()
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("read the kernel's leases: %w", err))...)
	}
	for _, l := range leases {
		if l.Slot != 0 && !known[l.Slot] {
			h.slots.keep(l.Slot)
			h.slots.leave(l.Slot)
			known[l.Slot] = true
		}
	}
	return errors.Join(append(errs, h.leaveDead(known))...)
}

// leaveDead keeps slots from new pods that were killed and that nothing else
// tells of: what spoke by one may live, and whoever got one would be mute.
func (h *Holders) leaveDead(known map[uint32]bool) error {
	for slot := uint32(firstSlot); slot <= bpf.MaxSlot; slot++ {
		if known[slot] {
			continue
		}
		dead, err := h.Kernel.SlotDead(slot)
		if err != nil {
			return fmt.Errorf("look for slots that were killed: %w", err)
		}
		if dead {
			h.slots.keep(slot)
			h.slots.leave(slot)
		}
	}
	return nil
}

// restore takes up one entry of this session.
func (h *Holders) restore(e *journal.Entry) error {
	if e.Phase != journal.Bound {
		// Nobody was told of these addresses, or they were given up.
		if e.Slot == 0 {
			return nil
		}
		return errors.Join(h.Kernel.KillSlot(e.Slot), h.restorePins(e))
	}
	var errs []error
	if _, err := h.OpenSegment(e.ParentIndex); err != nil {
		errs = append(errs, fmt.Errorf("open the segment of %s: %w", e.Parent, err))
	}
	attached, err := h.Kernel.GuardAttached(e.Slot)
	if err == nil && !attached {
		err = h.Kernel.StageGuard(guardOf(e))
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("guard %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err))
	}
	errs = append(errs, h.restorePins(e))
	for _, address := range e.Addresses {
		// A newer token is that of a newer sandbox of the same pod.
		if err := h.install(e, address); err != nil && !errors.Is(err, bpf.ErrOlderToken) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// restorePins finishes what an agent that died had left of a guard's move.
func (h *Holders) restorePins(e *journal.Entry) error {
	err := h.Kernel.PinGuard(guardOf(e))
	if err != nil {
		h.unpinned.add(attachmentOf(e))
		h.Metrics.PinFailed()
	}
	return err
}
