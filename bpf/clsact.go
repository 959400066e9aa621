package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// filterPriority is that of all our filters: nobody's can be lower.
const filterPriority = 1

// filterName tells whose a filter is; its handle tells two of one name on one device apart.
type filterName string

const (
	guardFilter    filterName = "fenceline-guard" // its handle is the slot
	observerFilter filterName = "fenceline-observer"
)

// filter runs a program on the frames of one direction. Such a filter judges like a link, but anybody in the device's
// namespace may take it away, and it does not outlive a move of the device.
func (d *device) filter(dir direction, name filterName, handle uint32, fd int) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: d.index, Parent: dir.clsact, Handle: handle,
			Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		},
		Fd: fd, Name: string(name), DirectAction: true,
	}
}

// addFilters puts both programs of a guard on the device, in place of those of a filter before. They enforce on return.
func (d *device) addFilters(slot uint32, programs pair) error {
	if err := d.addClsact(); err != nil {
		return err
	}
	for _, dir := range directions {
		if err := d.putFilter(d.filter(dir, guardFilter, slot, programs[dir.name].FD())); err != nil {
			return err
		}
	}
	return nil
}

// addClsact gives the device the qdisc that filters need; one that it has already stays.
func (d *device) addClsact() error {
	err := d.links.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: d.index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return noDevice(fmt.Errorf("add clsact: %w", err))
	}
	return nil
}

// putFilter replaces the filter of this handle in place, or adds it before all others of its priority.
func (d *device) putFilter(f *netlink.BpfFilter) error {
	if err := d.links.FilterReplace(f); err != nil {
		return noDevice(fmt.Errorf("put filter %s: %w", f.Name, err))
	}
	return nil
}

// filtered reports whether both filters of a guard are there.
func (d *device) filtered(slot uint32) (bool, error) {
	for _, dir := range directions {
		present, err := d.hasFilter(dir, slot)
		if err != nil || !present {
			return false, err
		}
	}
	return true, nil
}

// removeFilters takes a guard's filters away, and works twice. The qdisc stays: it costs nothing, and others may have put filters into it.
func (d *device) removeFilters(slot uint32) error {
	for _, dir := range directions {
		present, err := d.hasFilter(dir, slot)
		if err != nil {
			return err
		}
		if !present {
			continue
		}
		if err := d.removeFilter(dir, guardFilter, slot); err != nil {
			return err
		}
	}
	return nil
}

func (d *device) removeFilter(dir direction, name filterName, handle uint32) error {
	if err := d.links.FilterDel(d.filter(dir, name, handle, -1)); err != nil {
		return noDevice(fmt.Errorf("remove %s filter: %w", dir.name, err))
	}
	return nil
}

func (d *device) hasFilter(dir direction, slot uint32) (bool, error) {
	filters, err := d.filters(dir)
	return slices.ContainsFunc(filters, func(f netlink.Filter) bool {
		return isOurs(f, guardFilter) && f.Attrs().Handle == slot
	}), err
}

// filters are all of one direction, in the order in which they see a frame.
func (d *device) filters(dir direction) ([]netlink.Filter, error) {
	filters, err := d.links.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: d.index}}, dir.clsact)
	if err != nil {
		return nil, noDevice(fmt.Errorf("list %s filters: %w", dir.name, err))
	}
	return filters, nil
}

func isOurs(f netlink.Filter, name filterName) bool {
	own, ok := f.(*netlink.BpfFilter)
	return ok && own.Name == string(name)
}
