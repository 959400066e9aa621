package bpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Guard describes the two programs on one pod interface.
type Guard struct {
	// Slot is unique on the node among living guards, 1 to MaxSlot.
	Slot uint32
	// Segment is the ifindex of the parent in the host's network namespace.
	Segment int
	// NetNS is the path of the network namespace of Interface; "" is the calling thread's.
	NetNS string
	// Interface is the pod's device, by name.
	Interface string
	// Verify makes the guard check claims itself: on an SR-IOV VF no observer sees them.
	Verify bool
	// SourceGuard drops frames from addresses that are not leased to this slot.
	SourceGuard bool
}

func (g Guard) record(netns uint32) observerSlot {
	s := observerSlot{Status: slotAlive, Segment: uint32(g.Segment), Netns: netns}
	if g.Verify {
		s.Flags |= slotVerify
	}
	if g.SourceGuard {
		s.Flags |= slotSourceGuard
	}
	return s
}

// AttachGuard is StageGuard and PinGuard in one: it loads a guard for one pod interface, puts it at the head of both
// chains, pins it and makes the slot alive. Calling it again for the same interface replaces the programs in place;
// pins of a device that is gone are replaced.
func (k *Kernel) AttachGuard(g Guard) error {
	if err := k.StageGuard(g); err != nil {
		return err
	}
	return k.PinGuard(g)
}

// DetachGuard takes the guard off its device and frees the slot; a slot without guard is no error. The device must
// be down, gone or the pod's no more: from here on it speaks for whatever it likes.
func (k *Kernel) DetachGuard(slot uint32) error {
	if err := checkSlot(slot); err != nil {
		return fmt.Errorf("detach guard of slot %d: %w", slot, err)
	}
	defer k.guards.lock(slot)()
	if err := k.detachGuard(slot); err != nil {
		return fmt.Errorf("detach guard of slot %d: %w", slot, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.settle()
}

func (k *Kernel) detachGuard(slot uint32) error {
	if err := k.removeStage(slot); err != nil {
		return err
	}
	if err := k.dir.guard(slot).remove(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.putSlot(slot, observerSlot{}); err != nil {
		return err
	}
	delete(k.untold, slot)
	return nil
}

// GuardAttached reports whether both programs of the slot sit on a living device. It waits for a move of this slot.
func (k *Kernel) GuardAttached(slot uint32) (bool, error) {
	defer k.guards.lock(slot)()
	attached, err := k.dir.guard(slot).attached()
	if err == nil && !attached {
		attached, err = k.stageEnforces(slot)
	}
	if err != nil {
		return false, fmt.Errorf("check guard of slot %d: %w", slot, err)
	}
	return attached, nil
}

// SweepGuards unpins guards whose device is gone, frees their slots and returns them, also beside an error of others.
func (k *Kernel) SweepGuards() ([]uint32, error) {
	slots, err := k.sweepable()
	if err != nil {
		return nil, fmt.Errorf("sweep guards: %w", err)
	}
	loaded := sync.OnceValues(k.loadedGuards) // few sweeps have to know
	var swept []uint32
	var errs []error
	for _, slot := range slots {
		gone, err := k.sweepGuard(slot, loaded)
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep guard of slot %d: %w", slot, err))
		}
		if gone {
			swept = append(swept, slot)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return swept, errors.Join(append(errs, k.settle())...)
}

func (k *Kernel) sweepGuard(slot uint32, loaded func() (map[uint32]bool, error)) (gone bool, err error) {
	defer k.guards.lock(slot)()
	pins := k.dir.guard(slot)
	gone, err = pins.gone()
	if err != nil || !gone {
		return false, err
	}
	if gone, err = k.stageGone(slot); err != nil || !gone {
		return false, err
	}
	if gone, err = pins.pinned(); err == nil && !gone {
		// A process has ended in the middle, or a namespace has lost its name only: there may be filters on a device
		// that lives.
		var present map[uint32]bool
		present, err = loaded()
		gone = !present[slot]
	}
	if err != nil || !gone {
		return false, err
	}
	if err := k.detachGuard(slot); err != nil {
		return false, err
	}
	return true, nil
}

// guarded are the slots that guard a device, or did when it was there. It needs mu.
func (k *Kernel) guarded() ([]uint32, error) {
	slots, err := k.dir.guards()
	if err != nil {
		return nil, err
	}
	return sorted(slices.AppendSeq(slots, maps.Keys(k.staged))), nil
}

// sweepable are those, and the slots of which nothing else may tell.
func (k *Kernel) sweepable() ([]uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	slots, err := k.guarded()
	return sorted(slices.AppendSeq(slots, maps.Keys(k.untold))), err
}

func sorted(slots []uint32) []uint32 {
	slices.Sort(slots)
	return slices.Compact(slots)
}

// slotLocks is a lock for each slot. Two slots may share one: it is held for tens of milliseconds at most.
type slotLocks [256]sync.Mutex

// lock returns the function that unlocks.
func (l *slotLocks) lock(slot uint32) (unlock func()) {
	one := &l[slot%uint32(len(l))]
	one.Lock()
	return one.Unlock
}

// guarding tells which directions of the device are guarded by pinned links already, and unpins what was left of a
// device gone.
func guarding(pins pinPair, ifindex int, sameNetNS bool) (map[string]bool, error) {
	gone, err := pins.gone()
	if err != nil {
		return nil, err
	}
	if gone {
		return nil, pins.remove()
	}
	present := map[string]bool{}
	for _, d := range directions {
		on, ok, err := pins.device(d)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if on != uint32(ifindex) || !sameNetNS {
			return nil, fmt.Errorf("pinned on ifindex %d: %w", on, ErrPinned)
		}
		present[d.name] = true
	}
	return present, nil
}

// isGone tells whether an error of working on a device means that there is nothing to work on any more.
func isGone(err error) bool { return errors.Is(noDevice(err), ErrNoDevice) }
