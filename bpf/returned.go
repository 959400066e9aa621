// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/internal/wholelist"
)

// A VF outlives its pods. A tcx link stays on a device that moves to another network namespace, so
// the dead guard of one pod would keep the next pod mute. The move destroys a clsact qdisc.

// evict removes the guards of all other slots from the device of g. Their slots are killed first.
func (gs *Guards) evict(g Guard) error {
	dev, err := g.open()
	if err != nil {
		return err
	}
	dev.Close()
	return attach.InNetNS(g.NetNS, func() error { return gs.clear(dev.Index, g.Slot) })
}

// sweepReturned removes the guards from the VFs that are back in the node's network namespace, which is
// the calling thread's. No pod has them there.
func (gs *Guards) sweepReturned(slots []uint32) error {
	verifies := false
	for _, slot := range slots {
		s, err := gs.slots.read(slot)
		if err != nil {
			return err
		}
		verifies = verifies || s.verifies()
	}
	if !verifies {
		return nil
	}
	links, err := wholelist.Of(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list the interfaces of the node: %w", err)
	}
	var errs []error
	for _, l := range links {
		if l.Type() == "device" {
			errs = append(errs, gs.clear(l.Attrs().Index, 0))
		}
	}
	return errors.Join(errs...)
}

// clear removes the guards of other slots from a device in the calling thread's network namespace.
func (gs *Guards) clear(index int, except uint32) error {
	if gs.noTCX.Load() {
		return nil
	}
	slots, err := guardsOn(index, gs.shared)
	if err != nil {
		return err
	}
	var errs []error
	for slot := range slots {
		if slot == except {
			continue
		}
		err := gs.Kill(slot)
		if err == nil {
			err = gs.unpin(slot)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove the guard of slot %d from ifindex %d: %w", slot, index, err))
		}
	}
	return errors.Join(errs...)
}

func (gs *Guards) unpin(slot uint32) error {
	defer gs.locks.lock(slot)()
	return gs.dir.Guard(slot).Remove()
}
