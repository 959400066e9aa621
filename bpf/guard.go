package bpf

import (
	"errors"
	"fmt"
	"net"
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

// AttachGuard loads a guard for one pod interface, puts it at the head of both chains, pins it and makes the slot
// alive. Calling it again for the same interface replaces the programs in place; pins of a device that is gone are
// replaced. It returns ErrPinned when the slot guards another living device, ErrNoDevice when there is none.
func (k *Kernel) AttachGuard(g Guard) error {
	if err := k.loadAndAttachGuard(g); err != nil {
		return fmt.Errorf("attach guard of slot %d to %s: %w", g.Slot, g.Interface, err)
	}
	return nil
}

func (k *Kernel) loadAndAttachGuard(g Guard) error {
	if err := checkSlot(g.Slot); err != nil {
		return err
	}
	// The verifier takes its time; other pods' guards need not wait for it.
	programs, err := k.loadGuardPair(g.Slot, g.record(0))
	if err != nil {
		return err
	}
	defer programs.close()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := inNetNS(g.NetNS, func() error { return k.attachGuard(g, programs) }); err != nil {
		return err
	}
	return k.settle()
}

// attachGuard runs in the pod's network namespace.
func (k *Kernel) attachGuard(g Guard, programs pair) (err error) {
	dev, err := net.InterfaceByName(g.Interface)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	netns, err := netnsInode()
	if err != nil {
		return err
	}
	before, err := k.slot(g.Slot)
	if err != nil {
		return err
	}
	pins, record := k.dir.guard(g.Slot), g.record(netns)
	present, err := guarding(pins, dev.Index, before.Netns == netns)
	if err != nil {
		return err
	}
	// The slot lives before its first frame can be judged; a failure puts everything back.
	if err := k.putSlot(g.Slot, record); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.undoGuard(g.Slot, before, len(present) > 0))
		}
	}()
	for _, d := range directions {
		if present[d.name] {
			err = pins.replace(d, programs[d.name])
		} else {
			err = pins.attach(d, dev.Index, programs[d.name])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *Kernel) undoGuard(slot uint32, before observerSlot, keep bool) error {
	if !keep {
		if err := k.dir.guard(slot).remove(); err != nil {
			return err
		}
	}
	return k.putSlot(slot, before)
}

// guarding tells which directions of the device are guarded already, and unpins what was left of a device gone.
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

// DetachGuard takes the guard off its device and frees the slot; a slot without guard is no error. The device must
// be down, gone or the pod's no more: from here on it speaks for whatever it likes.
func (k *Kernel) DetachGuard(slot uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.detachGuard(slot); err != nil {
		return fmt.Errorf("detach guard of slot %d: %w", slot, err)
	}
	return k.settle()
}

func (k *Kernel) detachGuard(slot uint32) error {
	if err := checkSlot(slot); err != nil {
		return err
	}
	if err := k.dir.guard(slot).remove(); err != nil {
		return err
	}
	return k.putSlot(slot, observerSlot{})
}

// GuardAttached reports whether both programs of the slot sit on a living device.
func (k *Kernel) GuardAttached(slot uint32) (bool, error) {
	attached, err := k.dir.guard(slot).attached()
	if err != nil {
		return false, fmt.Errorf("check guard of slot %d: %w", slot, err)
	}
	return attached, nil
}

// SweepGuards unpins guards whose device is gone, frees their slots and returns them.
func (k *Kernel) SweepGuards() ([]uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	slots, err := k.dir.guards()
	if err != nil {
		return nil, fmt.Errorf("sweep guards: %w", err)
	}
	var swept []uint32
	for _, slot := range slots {
		gone, err := k.dir.guard(slot).gone()
		if err == nil && gone {
			err = k.detachGuard(slot)
		}
		if err != nil {
			return swept, fmt.Errorf("sweep guard of slot %d: %w", slot, err)
		}
		if gone {
			swept = append(swept, slot)
		}
	}
	return swept, k.settle()
}
