// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"context"
	"errors"
	"time"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/loop"
)

// sweepPeriod is how often guards of devices that are gone are swept.
const sweepPeriod = 5 * time.Second

// Wake makes the next sweep come at once: a VF may be back on the node.
func (g *Guards) Wake() { g.wake.Up() }

// Run sweeps every sweepPeriod until ctx ends, and puts guards back that were removed.
func (g *Guards) Run(ctx context.Context) error {
	return loop.Loop{Clock: g.Clock, Period: sweepPeriod, Later: true, Wake: g.wake}.Every(ctx, func(context.Context) {
		if err := g.Sweep(); err != nil {
			g.Log.Error(err, "sweep guards of devices that are gone")
		}
		if err := g.Repair(); err != nil {
			g.Log.Error(err, "put guards back that were removed")
		}
		if err := g.PinAgain(); err != nil {
			g.Log.Error(err, "pin guards that enforce already")
		}
	})
}

// Sweep frees slots whose entry and device are gone, and removes their leases from the kernel.
func (g *Guards) Sweep() error {
	_, err := g.Kernel.Guards.Sweep()
	leaving := g.Slots.leaving()
	if len(leaving) == 0 {
		return err
	}
	// If one guard cannot be swept, the other slots are still freed.
	errs := []error{err}
	leases, err := g.Leases.All()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, slot := range leaving {
		errs = append(errs, g.sweepSlot(slot, leases))
	}
	return errors.Join(errs...)
}

// sweepSlot frees a slot unless its device or its host link still exists and may send. A slot keeps
// its mark, alive or dead, until Sweep has seen that both are gone: its guard may be half
// pinned, or in filters of an earlier process that recovery has not found yet. A slot that is alive
// also keeps its leases until then. The slot is not given to a new pod meanwhile: the new pod would
// be mute, or the old one could use the addresses of the new one.
func (g *Guards) sweepSlot(slot uint32, leases map[bpf.Key]bpf.Lease) error {
	attached, err := g.Kernel.Guards.Attached(slot)
	if err != nil || attached {
		return err
	}
	used, err := g.Kernel.Slots.Used(slot)
	if err != nil {
		return err
	}
	if used {
		if dead, err := g.Kernel.Slots.Dead(slot); err != nil || !dead {
			return err
		}
	}
	for _, l := range leases {
		if l.Slot == slot && l.Flags&(bpf.FlagUnguarded|bpf.FlagVF) == bpf.FlagUnguarded {
			return nil // its program may run: there is no device that could be gone
		}
	}
	for key, l := range leases {
		if l.Slot == slot {
			if err := g.Leases.Uninstall(int(key.Segment), key.Addr, slot); err != nil {
				return err
			}
		}
	}
	if !used {
		g.Slots.PutBack(slot)
	}
	return nil
}
