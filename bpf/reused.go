// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/internal/wholelist"
)

// A VF outlives its pods. A tcx link stays on its device when the device moves to another network
// namespace, so the dead guard of one pod would keep the next pod mute. A clsact qdisc is destroyed by
// the move.

// evict removes the guards of all other slots from the device of g. Their slots are killed first.
func (gs *guards) evict(g Guard) error {
	return attach.InNetNS(g.NetNS, func() error {
		l, err := netlink.LinkByName(g.Interface)
		if err != nil {
			return attach.NoDevice(err)
		}
		return gs.clear(l.Attrs().Index, g.Slot)
	})
}

// sweepReturned removes the guards from the VFs that are back in the node's network namespace, which is
// the calling thread's. No pod has them there.
func (gs *guards) sweepReturned(slots []uint32) error {
	verifies := false
	for _, slot := range slots {
		s, err := gs.tables.slot(slot)
		if err != nil {
			return err
		}
		verifies = verifies || s.Flags&slotVerify != 0
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

// clear removes the guards of all slots but one from a device in the calling thread's network
// namespace.
func (gs *guards) clear(index int, except uint32) error {
	slots, err := gs.slotsOn(index)
	if err != nil {
		return err
	}
	var errs []error
	for slot := range slots {
		if slot == except {
			continue
		}
		err := gs.KillSlot(slot)
		if err == nil {
			err = gs.unpin(slot)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove the guard of slot %d from ifindex %d: %w", slot, index, err))
		}
	}
	return errors.Join(errs...)
}

func (gs *guards) unpin(slot uint32) error {
	defer gs.locks.lock(slot)()
	return gs.dir.guard(slot).Remove()
}

// slotsOn returns the slots whose guards have tcx links on a device in the calling thread's network
// namespace.
func (gs *guards) slotsOn(index int) (map[uint32]bool, error) {
	if gs.noTCX.Load() {
		return nil, nil
	}
	shared, err := gs.sharedIDs()
	if err != nil {
		return nil, err
	}
	slots := map[uint32]bool{}
	for _, d := range attach.Directions {
		chain, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: d.Hook})
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
			return nil, nil // no tcx, or no such device any more
		}
		if err != nil {
			return nil, fmt.Errorf("query %s chain of ifindex %d: %w", d.Name, index, err)
		}
		for _, p := range chain.Programs {
			slot, ours, err := guardOf(p.ID, shared)
			if err != nil {
				return nil, fmt.Errorf("query program %d: %w", p.ID, err)
			}
			if ours {
				slots[slot] = true
			}
		}
	}
	return slots, nil
}
