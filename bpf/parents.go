// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
)

// parentRecords returns the descriptions of parents in the map, by ifindex.
func parentRecords(m *observerMaps) (map[uint32]observerParent, error) {
	all, err := entriesOf[uint32, observerParent](m.Parents)
	if err != nil {
		return nil, fmt.Errorf("list parents: %w", err)
	}
	return all, nil
}

// forgetGone removes the descriptions of deleted parents from the map, and their programs from the
// kernel. Otherwise they would fill both, since each new device gets another ifindex.
func (o *Observers) forgetGone() error {
	all, err := parentRecords(o.maps)
	if err != nil {
		return err
	}
	for parent := range all {
		gone, err := o.isGone(int(parent))
		if err == nil && gone {
			err = o.detach(int(parent))
		}
		if err != nil {
			return fmt.Errorf("forget the parent with ifindex %d: %w", parent, err)
		}
	}
	return nil
}

// tellMACs writes the MACs of this node's parents into a map for the programs. Two parents on one
// segment hear each other, which proves nothing about other nodes (R2).
func (o *Observers) tellMACs() error {
	parents, err := parentRecords(o.maps)
	if err != nil {
		return err
	}
	wanted := map[[3]uint16]bool{}
	for _, p := range parents {
		wanted[p.Mac.Part] = true
	}
	present, err := entriesOf[[3]uint16, uint8](o.maps.OwnMacs)
	if err != nil {
		return fmt.Errorf("list MACs of parents: %w", err)
	}
	for mac := range present {
		if !wanted[mac] {
			if err := deleteEntry(o.maps.OwnMacs, mac); err != nil {
				return fmt.Errorf("remove a parent's MAC: %w", err)
			}
		}
	}
	for mac := range wanted {
		if err := o.maps.OwnMacs.Put(mac, uint8(1)); err != nil {
			return fmt.Errorf("add a parent's MAC: %w", err)
		}
	}
	return nil
}

// Links returns the kernel's IDs of the two attachments of a parent's observer, 0 for a missing one.
// The kernel never reuses an ID. If two calls return the same IDs, the observer saw every frame in
// between: Attach makes a new attachment after the observer was removed or hidden from frames.
func (o *Observers) Links(parent int) (ids [2]uint32, err error) {
	if o.noTCX.Load() {
		ids, err = attach.FirstFilters(parent)
	} else {
		for i, d := range attach.Directions {
			if ids[i], err = o.pins.Observer(parent).LinkID(d); err != nil {
				break
			}
		}
	}
	if err != nil {
		return [2]uint32{}, fmt.Errorf("read the attachments of the observer of ifindex %d: %w", parent, err)
	}
	return ids, nil
}

// Others returns the programs of others that see the frames of a parent where its observer does: in
// tcx, or without it among the filters of clsact. A missing parent has none. It waits for Attach:
// an observer that moves has two links for a moment, and one of them has no pin.
func (o *Observers) Others(parent int) (all []string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.noTCX.Load() {
		err = attach.OnParent(parent, func(_ *attach.Device, d attach.Direction, filters []netlink.Filter) error {
			for _, f := range filters {
				if !attach.IsNamed(f, attach.ObserverFilter) {
					all = append(all, fmt.Sprintf("%s filter with priority %d (%s)", d.Name, f.Attrs().Priority, f.Type()))
				}
			}
			return nil
		})
		return all, err
	}
	for _, d := range attach.Directions {
		names, err := o.pins.Observer(parent).Others(d, parent)
		if err != nil && !attach.IsGone(err) {
			return nil, err
		}
		all = append(all, names...)
	}
	return all, nil
}

// Blocked returns why something else is in the place of a parent's observer, and what to do; nil if
// nothing is. With tcx there is no such place. A missing parent has nothing.
func (o *Observers) Blocked(parent int) error {
	if !o.noTCX.Load() {
		return nil
	}
	dev, err := attach.OpenParent(parent)
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := dev.Blocked(); !attach.IsGone(err) {
		return err
	}
	return nil
}
