package bpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
)

// A guard comes in two steps, because the kernel makes each tcx link wait for a grace period of RCU, some 10 ms,
// under the lock of all network devices. StageGuard puts the programs into filters of a clsact qdisc, which enforce
// within a millisecond but can be taken away from inside the pod; PinGuard moves them to pinned links at the head of
// the chains, and takes the filters away once both are in place. In between both judge, and no frame goes unjudged.

// stagedGuard is a guard that has filters and not both of its pinned links.
type stagedGuard struct {
	Guard
	netns    uint32
	index    int
	programs pair
}

// StageGuard makes the slot alive, unless it was killed and not detached since, and puts its guard on one pod
// interface. It enforces on return; PinGuard makes it last. Calling it for an interface with pinned links replaces
// their programs in place.
//
// It returns ErrPinned when the slot guards another living device, ErrNoDevice when there is none.
func (k *Kernel) StageGuard(g Guard) error {
	if err := k.stageGuard(g); err != nil {
		return fmt.Errorf("attach guard of slot %d to %s: %w", g.Slot, g.Interface, err)
	}
	return nil
}

func (k *Kernel) stageGuard(g Guard) (err error) {
	if err := checkSlot(g.Slot); err != nil {
		return err
	}
	programs, err := k.takePrepared(g)
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			programs.close()
		}
	}()
	defer k.guards.lock(g.Slot)()
	dev, err := openDevice(g.NetNS, g.Interface)
	if err != nil {
		return err
	}
	defer dev.close()
	before, err := k.slot(g.Slot)
	if err != nil {
		return err
	}
	present, err := guarding(k.dir.guard(g.Slot), dev.index, before.Netns == dev.netns)
	if err != nil {
		return err
	}
	if err := k.leaveStage(g.Slot, dev); err != nil {
		return err
	}
	// The slot lives before its first frame can be judged; a failure puts everything back. One that was killed
	// stays dead until it is detached: after a crash its guard is put back, not its voice.
	record := g.record(dev.netns)
	if before.Status == slotDead {
		record.Status = slotDead
	}
	if err := k.changeSlot(g.Slot, record); err != nil {
		return err
	}
	if err := k.putPrograms(g.Slot, dev, programs, present); err != nil {
		return errors.Join(err, k.changeSlot(g.Slot, before))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(present) < len(directions) && !k.closed {
		k.staged[g.Slot] = stagedGuard{Guard: g, netns: dev.netns, index: dev.index, programs: programs}
		keep = true
	}
	return k.settle()
}

// putPrograms puts the programs where the device has pinned links, and into filters unless it has both.
func (k *Kernel) putPrograms(slot uint32, dev *device, programs pair, present map[string]bool) error {
	if len(present) < len(directions) {
		if err := dev.addFilters(slot, programs); err != nil {
			return errors.Join(err, dev.removeFilters(slot))
		}
	}
	for _, d := range directions {
		if !present[d.name] {
			continue
		}
		if err := k.dir.guard(slot).replace(d, programs[d.name]); err != nil {
			return err
		}
	}
	return nil
}

// leaveStage forgets that the slot is staged on a device, which must be this one or gone.
func (k *Kernel) leaveStage(slot uint32, dev *device) error {
	s, ok := k.stage(slot)
	if !ok {
		return nil
	}
	if s.netns != dev.netns || s.index != dev.index {
		lives, err := k.stageLives(slot)
		if err != nil {
			return err
		}
		if lives {
			return fmt.Errorf("staged on ifindex %d: %w", s.index, ErrPinned)
		}
	}
	k.forgetStage(slot)
	return nil
}

// PinGuard moves a staged guard to pinned links and takes its filters away, also one that was staged by a process
// before; it leaves the slot dead or alive, as it is. It takes tens of milliseconds and may be called again. A slot
// that was freed, and a device that is gone, are no error, nor is a kernel without tcx, where the guard stays staged.
func (k *Kernel) PinGuard(g Guard) error {
	err := k.pinGuard(g)
	if err != nil && !isGone(err) {
		return fmt.Errorf("pin guard of slot %d on %s: %w", g.Slot, g.Interface, err)
	}
	return nil
}

func (k *Kernel) pinGuard(g Guard) error {
	if err := checkSlot(g.Slot); err != nil {
		return err
	}
	defer k.guards.lock(g.Slot)()
	record, err := k.slot(g.Slot)
	if err != nil || record.Status == slotFree {
		return err
	}
	s, ok := k.stage(g.Slot)
	if !ok {
		if s, err = k.findStage(g, record); err != nil {
			return err
		}
		defer s.programs.close()
	}
	if k.noTCX.Load() {
		k.takeUp(s)
		return nil
	}
	dev, err := reopenDevice(s.NetNS, s.netns, s.index)
	if err != nil {
		return err
	}
	defer dev.close()
	err = inNetNS(s.NetNS, func() error { return k.attachLinks(s) })
	if errors.Is(err, ebpf.ErrNotSupported) {
		k.noTCX.Store(true)
		k.takeUp(s)
		return k.dir.guard(g.Slot).remove()
	}
	if err != nil {
		return err
	}
	if err := dev.removeFilters(g.Slot); err != nil {
		return err
	}
	k.forgetStage(g.Slot)
	return nil
}

// attachLinks runs in the pod's network namespace.
func (k *Kernel) attachLinks(s stagedGuard) error {
	pins := k.dir.guard(s.Slot)
	present, err := guarding(pins, s.index, true)
	if err != nil {
		return err
	}
	for _, d := range directions {
		if present[d.name] {
			continue
		}
		if err := pins.attach(d, s.index, s.programs[d.name]); err != nil {
			return err
		}
	}
	return nil
}

// stage returns the stage of a slot that this process made.
func (k *Kernel) stage(slot uint32) (stagedGuard, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.staged[slot]
	return s, ok
}

func (k *Kernel) forgetStage(slot uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.staged[slot].programs.close()
	delete(k.staged, slot)
}

// removeStage takes the filters of a staged guard away. A slot that is not staged is no error.
func (k *Kernel) removeStage(slot uint32) error {
	s, ok := k.stage(slot)
	if !ok {
		return nil
	}
	dev, err := reopenDevice(s.NetNS, s.netns, s.index)
	if err == nil {
		defer dev.close()
		err = dev.removeFilters(slot)
	}
	if err != nil && !isGone(err) {
		return err
	}
	k.forgetStage(slot)
	return nil
}

// removeStages takes the filters of all staged guards away.
func (k *Kernel) removeStages() error {
	var errs []error
	for _, slot := range k.stagedSlots() {
		errs = append(errs, k.removeStage(slot))
	}
	return errors.Join(errs...)
}

func (k *Kernel) stagedSlots() []uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.staged))
}

// stageLives tells whether the slot is staged on a living device.
func (k *Kernel) stageLives(slot uint32) (bool, error) {
	return k.onStage(slot, func(*device) (bool, error) { return true, nil })
}

// stageGone tells whether the slot is not staged, or its device cannot be found. Then it lets go of the programs: the
// kernel has them for as long as the device lives.
func (k *Kernel) stageGone(slot uint32) (bool, error) {
	lives, err := k.stageLives(slot)
	if err != nil || lives {
		return false, err
	}
	k.forgetStage(slot)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.untold[slot] = true
	return true, nil
}

// stageEnforces tells whether the slot is staged on a living device and has both its filters still.
func (k *Kernel) stageEnforces(slot uint32) (bool, error) {
	return k.onStage(slot, func(dev *device) (bool, error) { return dev.filtered(slot) })
}

// onStage asks the living device that the slot is staged on; false when there is none.
func (k *Kernel) onStage(slot uint32, ask func(*device) (bool, error)) (bool, error) {
	s, ok := k.stage(slot)
	if !ok {
		return false, nil
	}
	dev, err := reopenDevice(s.NetNS, s.netns, s.index)
	if err != nil {
		if isGone(err) {
			err = nil
		}
		return false, err
	}
	defer dev.close()
	return ask(dev)
}
