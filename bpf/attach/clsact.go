// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// filterPriority is the priority of all our filters. It is the lowest number, so they run first.
const filterPriority = 1

// filterName marks our filters. The handle distinguishes filters of the same name on one device.
type filterName string

const (
	GuardFilter    filterName = "fenceline-guard" // its handle is the slot
	ObserverFilter filterName = "fenceline-observer"
)

// Filter describes a filter that runs a program on the frames of one direction. Unlike a link it
// can be removed with NET_ADMIN in the device's namespace, and is lost when the device moves.
func (d *Device) Filter(dir Direction, name filterName, handle uint32, fd int) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: d.Index, Parent: dir.clsact, Handle: handle, Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		},
		Fd: fd, Name: string(name), DirectAction: true,
	}
}

// AddFilters puts both programs of a guard on the device and replaces earlier ones. They enforce on
// return.
func (d *Device) AddFilters(slot uint32, programs Programs) error {
	if err := d.AddClsact(); err != nil {
		return err
	}
	for _, dir := range Directions {
		if err := d.PutFilter(d.Filter(d.At(dir), GuardFilter, slot, programs[dir.Name].FD())); err != nil {
			return err
		}
	}
	return nil
}

// AddClsact adds the qdisc that filters need, unless the device has it.
func (d *Device) AddClsact() error {
	err := d.links.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: d.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if errors.Is(err, unix.EEXIST) {
		return d.checkClsact()
	}
	if err != nil {
		return NoDevice(fmt.Errorf("add clsact: %w", err))
	}
	return nil
}

// checkClsact returns an error if the device has an ingress qdisc in the place of clsact. That qdisc
// takes filters of both directions for those of frames that come in.
func (d *Device) checkClsact() error {
	qdiscs, err := d.links.QdiscList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: d.Index}})
	if err != nil {
		return NoDevice(fmt.Errorf("list qdiscs: %w", err))
	}
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT && q.Type() != "clsact" {
			return fmt.Errorf("the device has an %s qdisc, which has no filters for frames that leave; remove it (tc qdisc del dev … ingress), add clsact, and put its filters there, with the parent ffff:fff2", q.Type())
		}
	}
	return nil
}

// Blocked returns why the device cannot have our filters, and what to do; nil if it can.
func (d *Device) Blocked() error {
	if err := d.checkClsact(); err != nil {
		return err
	}
	for _, dir := range Directions {
		filters, err := d.Filters(dir)
		if err != nil {
			return err
		}
		for _, f := range filters {
			a := f.Attrs()
			if a.Priority == filterPriority && (f.Type() != "bpf" || a.Protocol != unix.ETH_P_ALL) {
				return fmt.Errorf("an %s filter of kind %s and protocol %#04x has priority %d, which the kernel lets no filter of another kind or protocol have; give it a priority of a greater number", dir.Name, f.Type(), a.Protocol, a.Priority)
			}
		}
	}
	return nil
}

// PutFilter replaces the filter of this handle, or adds it before all others of its priority.
func (d *Device) PutFilter(f *netlink.BpfFilter) error {
	err := d.links.FilterReplace(f)
	if errors.Is(err, unix.EINVAL) {
		err = errors.Join(d.Blocked(), err)
	}
	if err != nil {
		return NoDevice(fmt.Errorf("put filter %s: %w", f.Name, err))
	}
	return nil
}

// Filtered reports whether the device has both filters of a guard.
func (d *Device) Filtered(slot uint32) (bool, error) {
	for _, dir := range Directions {
		present, err := d.HasFilter(dir, slot)
		if err != nil || !present {
			return false, err
		}
	}
	return true, nil
}

// RemoveFilters removes a guard's filters. A missing filter is no error. The qdisc stays: it costs
// nothing, and others may use it.
func (d *Device) RemoveFilters(slot uint32) error {
	for _, dir := range Directions {
		present, err := d.HasFilter(dir, slot)
		if err == nil && present {
			err = d.RemoveFilter(dir, GuardFilter, slot)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// RemoveFilter removes one filter of ours. The pod may have removed it first.
func (d *Device) RemoveFilter(dir Direction, name filterName, handle uint32) error {
	err := d.links.FilterDel(d.Filter(dir, name, handle, -1))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return NoDevice(fmt.Errorf("remove %s filter: %w", dir.Name, err))
	}
	return nil
}

// RemoveNamed removes those of the given filters that have this name.
func (d *Device) RemoveNamed(dir Direction, name filterName, filters []netlink.Filter) error {
	for _, f := range filters {
		if !IsNamed(f, name) {
			continue
		}
		if err := d.RemoveFilter(dir, name, f.Attrs().Handle); err != nil {
			return err
		}
	}
	return nil
}

// HasFilter reports whether the device has the filter of a guard.
func (d *Device) HasFilter(dir Direction, slot uint32) (bool, error) {
	filters, err := d.Filters(dir)
	return slices.ContainsFunc(filters, func(f netlink.Filter) bool {
		return IsNamed(f, GuardFilter) && f.Attrs().Handle == slot
	}), err
}

// Filters returns all filters of one Direction, in the order in which they see a frame.
func (d *Device) Filters(dir Direction) ([]netlink.Filter, error) {
	filters, err := d.links.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: d.Index}}, dir.clsact)
	if err != nil {
		return nil, NoDevice(fmt.Errorf("list %s filters: %w", dir.Name, err))
	}
	return filters, nil
}

// IsNamed reports whether f is a filter of ours with this name.
func IsNamed(f netlink.Filter, name filterName) bool {
	own, ok := f.(*netlink.BpfFilter)
	return ok && own.Name == string(name)
}
