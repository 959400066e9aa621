// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/attach"
)

// A guard is attached in two steps, because each tcx link waits for an RCU grace period of some 10
// ms under the kernel's lock of all network devices. Stage puts the programs into filters of a
// clsact qdisc. They enforce within a millisecond, but can be removed from inside the pod. Pin
// attaches pinned links at the head of the chains, and removes the filters after both links are
// attached. In between both enforce, and no frame passes unguarded.

// Stage puts a guard on a pod interface and makes its slot alive, unless the slot was killed
// and not detached since. The guard enforces on return, and Pin makes it permanent. If the
// interface has pinned links already, Stage replaces their programs in place.
//
// It returns ErrPinned if the slot guards another existing device, ErrNoDevice if the interface
// does not exist.
func (gs *Guards) Stage(g Guard) error {
	err := gs.stageGuard(g)
	if err == nil && g.Verify {
		// The new guard enforces already. No lock of a slot is held: two slots may share one.
		err = gs.evict(g)
	}
	if err != nil {
		return fmt.Errorf("attach guard of slot %d to %s: %w", g.Slot, g.Interface, err)
	}
	return nil
}

func (gs *Guards) stageGuard(g Guard) (err error) {
	if err := checkSlot(g.Slot); err != nil {
		return err
	}
	programs, err := gs.programs.load(g.Slot, g.Verify)
	if err != nil {
		return err
	}
	defer programs.Close() // links and filters hold them
	defer gs.locks.lock(g.Slot)()
	dev, err := g.open()
	if err != nil {
		return err
	}
	defer dev.Close()
	netns, err := g.podNetNS(dev)
	if err != nil {
		return err
	}
	before, err := gs.slots.read(g.Slot)
	if err != nil {
		return err
	}
	present, err := guarding(gs.dir.Guard(g.Slot), dev.Index, before.Netns == netns)
	if err != nil {
		return err
	}
	if err := gs.leaveStage(g.Slot, dev); err != nil {
		return err
	}
	if g.NodeEnd == 0 {
		if _, err := gs.sockets.Refuse(g.Slot, g.NetNS); err != nil {
			return err
		}
	}
	// The slot must be alive before its first frame. A failure restores the old record.
	if err := gs.change(g.Slot, g.record(netns)); err != nil {
		return err
	}
	if g.Living && !gs.noTCX.Load() {
		if err := gs.linkLiving(g, dev, programs, present); err != nil {
			return errors.Join(err, gs.change(g.Slot, before))
		}
	}
	if err := gs.putPrograms(g.Slot, dev, programs, present); err != nil {
		return errors.Join(err, gs.change(g.Slot, before))
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if len(present) < len(attach.Directions) {
		gs.stages.staged[g.Slot] = stagedGuard{Guard: g, netns: dev.NetNS, index: dev.Index}
	}
	return gs.gate.settle()
}

func (gs *Guards) change(slot uint32, r observerSlot) error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.slots.change(slot, func(s *observerSlot) { s.describe(r) })
}

// putPrograms puts the programs into the device's pinned links, and into filters if one is missing.
func (gs *Guards) putPrograms(slot uint32, dev *attach.Device, programs attach.Programs, present map[string]bool) error {
	if len(present) < len(attach.Directions) {
		if err := dev.AddFilters(slot, programs); err != nil {
			return errors.Join(err, dev.RemoveFilters(slot))
		}
	}
	for _, d := range attach.Directions {
		if present[d.Name] {
			if err := gs.dir.Guard(slot).Replace(d, programs[d.Name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkLiving puts the programs of a guard into pinned links at once, and notes them in present. Without tcx it does
// nothing.
func (gs *Guards) linkLiving(g Guard, dev *attach.Device, programs attach.Programs, present map[string]bool) error {
	pins, isFirst := gs.dir.Guard(g.Slot), len(present) == 0
	err := attach.InNetNS(g.path(), func() error { return attachMissing(pins, dev, programs, present) })
	if errors.Is(err, ebpf.ErrNotSupported) {
		gs.noTCX.Store(true)
		clear(present)
		return pins.Remove()
	}
	if err != nil && isFirst { // no half of a guard stays
		return errors.Join(err, pins.Remove())
	}
	return err
}

// attachMissing attaches the programs that are not present. It runs in the device's network namespace.
func attachMissing(pins attach.Pins, dev *attach.Device, programs attach.Programs, present map[string]bool) error {
	for _, d := range attach.Directions {
		if !present[d.Name] {
			if err := pins.Attach(dev.At(d), dev.Index, programs[d.Name]); err != nil {
				return err
			}
			present[d.Name] = true
		}
	}
	return nil
}

// leaveStage forgets the slot's stage. It returns ErrPinned if that is on another existing device.
func (gs *Guards) leaveStage(slot uint32, dev *attach.Device) error {
	s, ok := gs.stages.of(slot)
	if !ok {
		return nil
	}
	if s.netns != dev.NetNS || s.index != dev.Index {
		lives, err := gs.stages.lives(slot)
		if err != nil {
			return err
		}
		if lives {
			return fmt.Errorf("staged on ifindex %d: %w", s.index, ErrPinned)
		}
	}
	gs.stages.forget(slot)
	return nil
}

// Pin moves a staged guard to pinned links and removes its filters, also if an earlier process
// staged it. The slot stays dead or alive. It takes tens of milliseconds and may be called again. A
// freed slot is no error. On a kernel without tcx the guard stays staged, which is no error either.
//
// It returns ErrNoDevice if the device is not in its network namespace any more. Then no guard is on
// it: a device that moves takes pinned links along, and loses filters.
func (gs *Guards) Pin(g Guard) error {
	if err := gs.pinGuard(g); err != nil {
		return fmt.Errorf("pin guard of slot %d on %s: %w", g.Slot, g.Interface, attach.NoDevice(err))
	}
	return nil
}

func (gs *Guards) pinGuard(g Guard) error {
	if err := checkSlot(g.Slot); err != nil {
		return err
	}
	defer gs.locks.lock(g.Slot)()
	record, err := gs.slots.read(g.Slot)
	if err != nil || record.Status == slotFree {
		return err
	}
	s, ok := gs.stages.of(g.Slot)
	if !ok {
		if s, err = gs.findStage(g, record); err != nil {
			return err
		}
	}
	if gs.noTCX.Load() {
		gs.stages.takeUp(s)
		return nil
	}
	dev, err := s.reopen()
	if err != nil {
		return err
	}
	defer dev.Close()
	err = attach.InNetNS(s.path(), func() error { return gs.attachLinks(s, dev, record) })
	if errors.Is(err, ebpf.ErrNotSupported) {
		gs.noTCX.Store(true)
		gs.stages.takeUp(s)
		return gs.dir.Guard(g.Slot).Remove()
	}
	if err != nil {
		return err
	}
	if err := dev.RemoveFilters(g.Slot); err != nil {
		return err
	}
	gs.stages.forget(g.Slot)
	return nil
}

// findStage returns the stage that an earlier process has left.
func (gs *Guards) findStage(g Guard, record observerSlot) (stagedGuard, error) {
	dev, err := g.open()
	if err != nil {
		return stagedGuard{}, err
	}
	defer dev.Close()
	netns, err := g.podNetNS(dev)
	if err != nil {
		return stagedGuard{}, err
	}
	if netns != record.Netns {
		return stagedGuard{}, fmt.Errorf("%w: %s is not the guard's network namespace any more", attach.ErrNoDevice, g.NetNS)
	}
	return stagedGuard{Guard: g, netns: dev.NetNS, index: dev.Index}, nil
}

// attachLinks runs in the device's network namespace.
func (gs *Guards) attachLinks(s stagedGuard, dev *attach.Device, record observerSlot) error {
	pins := gs.dir.Guard(s.Slot)
	present, err := guarding(pins, s.index, true)
	if err != nil || len(present) == len(attach.Directions) {
		return err
	}
	programs, err := gs.programs.load(s.Slot, record.verifies())
	if err != nil {
		return err
	}
	defer programs.Close()
	return attachMissing(pins, dev, programs, present)
}

// guarding returns the directions in which pinned links already guard the device. It unpins the
// links of a device that does not exist any more.
func guarding(pins attach.Pins, ifindex int, sameNetNS bool) (map[string]bool, error) {
	gone, err := pins.Gone()
	if err != nil {
		return nil, err
	}
	present := map[string]bool{}
	if gone {
		return present, pins.Remove()
	}
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
