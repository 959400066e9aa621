package holder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

// sweepPeriod is how often guards of devices that are gone are swept.
const sweepPeriod = 5 * time.Second

// RunSweeps sweeps from time to time until ctx ends. The order of addresses is
// journalled at the end too.
func (h *Holders) RunSweeps(ctx context.Context) error {
	for _, parent := range h.parents() {
		h.prepare(parent)
	}
	for {
		timer := h.Clock.NewTimer(sweepPeriod)
		select {
		case <-ctx.Done():
			timer.Stop()
			return h.saveRotations()
		case <-timer.C():
		}
		h.stock.sweep(h.ParentExists)
		if err := h.Sweep(); err != nil {
			h.Log.Error(err, "sweep guards of devices that are gone")
		}
		if err := h.pinAgain(); err != nil {
			h.Log.Error(err, "pin guards that enforce already")
		}
		if err := h.saveRotations(); err != nil {
			h.Log.Error(err, "the order of addresses begins anew after a restart")
		}
	}
}

// Sweep gives slots back whose entry and device are gone, with what the kernel
// holds for them.
func (h *Holders) Sweep() error {
	_, err := h.Kernel.SweepGuards()
	leaving := h.slots.leaving()
	if len(leaving) == 0 {
		return err
	}
	// One guard that cannot be swept keeps no other slot.
	errs := []error{err}
	leases, err := h.Kernel.Leases()
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("read the kernel's leases: %w", err))...)
	}
	for _, slot := range leaving {
		errs = append(errs, h.sweepSlot(slot, leases))
	}
	return errors.Join(errs...)
}

// sweepSlot frees a slot, unless its device still lives and may try to speak. One
// that was killed is so marked until SweepGuards has seen its device gone: to wipe
// the mark would let a device speak whose guard was torn, or which was guarded by a
// process before and whose pin never came; to give the slot away would mute a pod.
func (h *Holders) sweepSlot(slot uint32, leases map[bpf.Key]bpf.Lease) error {
	attached, err := h.Kernel.GuardAttached(slot)
	if err != nil || attached {
		return err
	}
	for key, l := range leases {
		if l.Slot != slot {
			continue
		}
		if err := h.uninstall(key, slot); err != nil {
			return err
		}
	}
	if dead, err := h.Kernel.SlotDead(slot); err != nil || dead {
		return err
	}
	h.slots.free(slot)
	return nil
}

// saveRotations journals where the rotations stand. They are a hint, which no
// ADD has to wait for.
func (h *Holders) saveRotations() error {
	last := h.Allocator.Last()
	if maps.Equal(last, h.Journal.Rotations()) {
		return nil
	}
	return h.Journal.PutRotations(last)
}
