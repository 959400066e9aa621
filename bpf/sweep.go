// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Sweep unpins guards whose device does not exist any more or, as a VF, is back on the node. It
// frees their slots and returns them. A slot waits for its host link as well, which may outlive the
// pod's interface. It returns the freed slots also with an error about other slots.
func (gs *Guards) Sweep() ([]uint32, error) {
	slots, err := gs.sweepable()
	if err != nil {
		return nil, fmt.Errorf("sweep guards: %w", err)
	}
	loaded := sync.OnceValues(func() (map[uint32]bool, error) { return loadedGuards(gs.shared) }) // few sweeps need it
	var swept []uint32
	errs := []error{gs.sweepReturned(slots)}
	for _, slot := range slots {
		gone, err := gs.sweepGuard(slot, loaded)
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep guard of slot %d: %w", slot, err))
		}
		if gone {
			swept = append(swept, slot)
		}
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return swept, errors.Join(append(errs, gs.gate.settle())...)
}

func (gs *Guards) sweepGuard(slot uint32, loaded func() (map[uint32]bool, error)) (gone bool, err error) {
	defer gs.locks.lock(slot)()
	pins := gs.dir.Guard(slot)
	gone, err = pins.Gone()
	if err != nil || !gone {
		return false, err
	}
	if gone, err = gs.stages.gone(slot); err != nil || !gone {
		return false, err
	}
	if linked, err := gs.HostLinks.has(slot); err != nil || linked {
		return false, err
	}
	if gone, err = pins.Pinned(); err == nil && !gone {
		// A process may have ended before it pinned links, or the namespace has lost only its name:
		// the device may still exist and have filters.
		var present map[uint32]bool
		present, err = loaded()
		gone = !present[slot]
	}
	if err == nil && gone {
		err = gs.detachGuard(slot)
	}
	return gone && err == nil, err
}

// guarded returns the slots with pins or a stage, whether or not their device still exists. It
// needs mu.
func (gs *Guards) guarded() ([]uint32, error) {
	slots, err := gs.dir.Guards()
	if err != nil {
		return nil, err
	}
	return sorted(slices.AppendSeq(slots, maps.Keys(gs.stages.staged))), nil
}

// sweepable returns the guarded and the unrecorded slots.
func (gs *Guards) sweepable() ([]uint32, error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	slots, err := gs.guarded()
	return sorted(slices.AppendSeq(slots, maps.Keys(gs.stages.unrecorded))), err
}

func sorted(slots []uint32) []uint32 {
	slices.Sort(slots)
	return slices.Compact(slots)
}
