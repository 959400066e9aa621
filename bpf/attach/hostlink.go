// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
)

// The node's end of a host link has filters only, in both directions, before all other filters. The
// pod has no access to the node's namespace, and the device does not move.

// HostLinkFilter marks the filters on the node's end of a host link. The slot is in their class.
const HostLinkFilter filterName = "fenceline-link"

// HostLinkClass is the lower half of the class, by which the programs know a host link.
const HostLinkClass uint16 = 0xf11e

func classOf(slot uint32) uint32 { return slot<<16 | uint32(HostLinkClass) }

// slotOf returns the slot of a host link's filter, 0 for other filters.
func slotOf(f netlink.Filter) uint32 {
	if own, ok := f.(*netlink.BpfFilter); ok && IsNamed(f, HostLinkFilter) && uint16(own.ClassId) == HostLinkClass {
		return own.ClassId >> 16
	}
	return 0
}

// AddHostLinkFilters puts the programs of a slot's guard on the node's end of a host link, before
// all other filters, and replaces those of any slot with no frame unguarded. The frames that leave
// the pod come in here, so each program judges the opposite direction.
func (d *Device) AddHostLinkFilters(slot uint32, programs Programs) error {
	if err := d.AddClsact(); err != nil {
		return err
	}
	for i, dir := range Directions {
		opposite := Directions[len(Directions)-1-i]
		filters, err := d.Filters(dir)
		if err != nil {
			return err
		}
		f := d.Filter(dir, HostLinkFilter, UnusedHandle(filters), programs[opposite.Name].FD())
		f.ClassId = classOf(slot)
		if err := d.PutFilter(f); err != nil {
			return err
		}
		if err := d.RemoveNamed(dir, HostLinkFilter, filters); err != nil {
			return err
		}
	}
	return nil
}

// RemoveHostLinkFilters removes the filters of a host link, of any slot.
func (d *Device) RemoveHostLinkFilters() error {
	for _, dir := range Directions {
		filters, err := d.Filters(dir)
		if err == nil {
			err = d.RemoveNamed(dir, HostLinkFilter, filters)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// GuardsHostLink reports whether the filters of a slot are the first ones in both directions.
func (d *Device) GuardsHostLink(slot uint32) (bool, error) {
	for _, dir := range Directions {
		filters, err := d.Filters(dir)
		if err != nil || len(filters) == 0 || slotOf(filters[0]) != slot {
			return false, err
		}
	}
	return true, nil
}

// HasHostLink reports whether the device has a filter of a slot's host link, in any direction.
func (d *Device) HasHostLink(slot uint32) (bool, error) {
	for _, dir := range Directions {
		filters, err := d.Filters(dir)
		if err != nil || slices.ContainsFunc(filters, func(f netlink.Filter) bool { return slotOf(f) == slot }) {
			return err == nil, err
		}
	}
	return false, nil
}

// OnHostLinks visits the host links in the calling thread's network namespace with their slots, until
// visit returns an error. A device that goes meanwhile is no error.
func OnHostLinks(visit func(slot uint32, dev *Device) error) error {
	d, err := openNetNS("")
	if err != nil {
		return err
	}
	defer d.Close()
	qdiscs, err := d.links.QdiscList(nil)
	if err != nil {
		return fmt.Errorf("list qdiscs: %w", err)
	}
	for _, q := range qdiscs {
		if q.Type() != "clsact" {
			continue
		}
		on := &Device{links: d.links, NetNS: d.NetNS, Index: q.Attrs().LinkIndex}
		slot, err := on.hostLinkSlot()
		if err == nil && slot != 0 {
			err = visit(slot, on)
		}
		if err != nil && !IsGone(err) {
			return err
		}
	}
	return nil
}

// hostLinkSlot returns the slot of the host link that the device is, or 0.
func (d *Device) hostLinkSlot() (slot uint32, err error) {
	for _, dir := range Directions {
		filters, err := d.Filters(dir)
		if err != nil {
			return 0, fmt.Errorf("filters of ifindex %d: %w", d.Index, err)
		}
		for _, f := range filters {
			slot = max(slot, slotOf(f))
		}
	}
	return slot, nil
}
