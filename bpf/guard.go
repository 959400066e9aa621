// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fenceline/fenceline/bpf/attach"
)

// Guard describes the two programs on one pod interface.
type Guard struct {
	// Slot is unique on the node among living guards, 1 to MaxSlot.
	Slot uint32
	// Segment is the ifindex of the parent in the host's network namespace.
	Segment int
	// NetNS is the path of Interface's network namespace; "" is the calling thread's.
	NetNS string
	// Interface is the pod's device, by name.
	Interface string
	// Verify makes the guard verify claims. On an SR-IOV VF no observer sees them.
	Verify bool
}

// guards are the programs on the interfaces of pods. The type loads them ahead, attaches them, and sweeps
// the guards of devices that no longer exist.
type guards struct {
	dir    pinDir
	code   *code
	noTCX  *atomic.Bool
	tables *tables
	stages *stages
	// locks serialises work on the guard of one slot, which may wait for the kernel. A slot's lock
	// is taken before tables.mu.
	locks slotLocks

	stock  map[uint32]preparedGuard // the programs that were loaded ahead, by slot
	links  map[uint32]hostLink      // the host links that have filters, by slot
	closed bool
}

func (g Guard) record(netns uint32) observerSlot {
	s := observerSlot{Status: slotAlive, Segment: uint32(g.Segment), Netns: netns}
	if g.Verify {
		s.Flags |= slotVerify
	}
	return s
}

// DetachGuard removes the guard from its device and frees the slot. A slot without a guard is no
// error. The device must be down, deleted or no longer the pod's, since nothing restricts it after
// the call. If the slot still guards a host link, the slot is killed instead, and SweepGuards frees
// it when the link is gone.
func (gs *guards) DetachGuard(slot uint32) error {
	if err := checkSlot(slot); err != nil {
		return fmt.Errorf("detach guard of slot %d: %w", slot, err)
	}
	defer gs.locks.lock(slot)()
	if err := gs.detachGuard(slot); err != nil {
		return fmt.Errorf("detach guard of slot %d: %w", slot, err)
	}
	gs.tables.mu.Lock()
	defer gs.tables.mu.Unlock()
	return gs.tables.settle()
}

func (gs *guards) detachGuard(slot uint32) error {
	if err := gs.stages.remove(slot); err != nil {
		return err
	}
	if err := gs.dir.guard(slot).Remove(); err != nil {
		return err
	}
	linked, err := gs.linked(slot)
	if err != nil {
		return err
	}
	gs.tables.mu.Lock()
	defer gs.tables.mu.Unlock()
	if linked {
		return gs.killSlot(slot)
	}
	if err := gs.tables.putSlot(slot, observerSlot{}); err != nil {
		return err
	}
	if err := gs.tables.forgetSources(slot); err != nil {
		return err
	}
	delete(gs.stages.unrecorded, slot)
	delete(gs.links, slot)
	return nil
}

// GuardAttached reports whether both programs of the slot are attached to an existing device. It
// waits while PinGuard moves this slot.
func (gs *guards) GuardAttached(slot uint32) (bool, error) {
	defer gs.locks.lock(slot)()
	attached, err := gs.dir.guard(slot).Attached()
	if err == nil && !attached {
		attached, err = gs.stages.enforces(slot)
	}
	if err != nil {
		return false, fmt.Errorf("check guard of slot %d: %w", slot, err)
	}
	return attached, nil
}

// SweepGuards unpins guards whose device does not exist any more or, as a VF, is back on the node. It
// frees their slots and returns them. A slot waits for its host link as well, which may outlive the pod's interface. It returns
// the freed slots also with an error about other slots.
func (gs *guards) SweepGuards() ([]uint32, error) {
	slots, err := gs.sweepable()
	if err != nil {
		return nil, fmt.Errorf("sweep guards: %w", err)
	}
	loaded := sync.OnceValues(gs.loadedGuards) // few sweeps need it
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
	gs.tables.mu.Lock()
	defer gs.tables.mu.Unlock()
	return swept, errors.Join(append(errs, gs.tables.settle())...)
}

func (gs *guards) sweepGuard(slot uint32, loaded func() (map[uint32]bool, error)) (gone bool, err error) {
	defer gs.locks.lock(slot)()
	pins := gs.dir.guard(slot)
	gone, err = pins.Gone()
	if err != nil || !gone {
		return false, err
	}
	if gone, err = gs.stages.gone(slot); err != nil || !gone {
		return false, err
	}
	if linked, err := gs.linked(slot); err != nil || linked {
		return false, err
	}
	if gone, err = pins.Pinned(); err == nil && !gone {
		// A process may have ended before it pinned links, or the namespace has lost only its name:
		// the device may still exist and have filters.
		var present map[uint32]bool
		present, err = loaded()
		gone = !present[slot]
	}
	if err != nil || !gone {
		return false, err
	}
	if err := gs.detachGuard(slot); err != nil {
		return false, err
	}
	return true, nil
}

// guarded returns the slots with pins or a stage, whether or not their device still exists. It
// needs mu.
func (gs *guards) guarded() ([]uint32, error) {
	slots, err := gs.dir.guards()
	if err != nil {
		return nil, err
	}
	return sorted(slices.AppendSeq(slots, maps.Keys(gs.stages.staged))), nil
}

// sweepable returns the guarded and the unrecorded slots.
func (gs *guards) sweepable() ([]uint32, error) {
	gs.tables.mu.Lock()
	defer gs.tables.mu.Unlock()
	slots, err := gs.guarded()
	return sorted(slices.AppendSeq(slots, maps.Keys(gs.stages.unrecorded))), err
}

func sorted(slots []uint32) []uint32 {
	slices.Sort(slots)
	return slices.Compact(slots)
}

// slotLocks has a lock for each slot. Two slots may share one, since it is held for tens of
// milliseconds at most.
type slotLocks [256]sync.Mutex

// lock locks a slot and returns the function that unlocks it.
func (l *slotLocks) lock(slot uint32) (unlock func()) {
	one := &l[slot%uint32(len(l))]
	one.Lock()
	return one.Unlock
}

// guarding returns the directions in which pinned links already guard the device. It unpins the
// links of a device that does not exist any more.
func guarding(pins attach.Pins, ifindex int, sameNetNS bool) (map[string]bool, error) {
	gone, err := pins.Gone()
	if err != nil {
		return nil, err
	}
	if gone {
		return nil, pins.Remove()
	}
	present := map[string]bool{}
	for _, d := range attach.Directions {
		on, ok, err := pins.On(d)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if on != uint32(ifindex) || !sameNetNS {
			return nil, fmt.Errorf("pinned on ifindex %d: %w", on, ErrPinned)
		}
		present[d.Name] = true
	}
	return present, nil
}
