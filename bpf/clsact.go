package bpf

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The filters of a stage, one for each direction. Their handle is the slot, the name tells them from others'.
const (
	filterName     = "fenceline-guard"
	filterPriority = 1
)

// filter runs a program on the frames of one direction. Such a filter judges like a link, but anybody in the pod's
// namespace may take it away, and it does not outlive a move of the device.
func (d *device) filter(dir direction, slot uint32, fd int) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: d.index, Parent: dir.clsact, Handle: slot,
			Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		},
		Fd: fd, Name: filterName, DirectAction: true,
	}
}

// addFilters puts both programs on the device, in place of those of a filter before. They enforce on return.
func (d *device) addFilters(slot uint32, programs pair) error {
	err := d.links.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: d.index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return noDevice(fmt.Errorf("add clsact: %w", err))
	}
	for _, dir := range directions {
		if err := d.links.FilterReplace(d.filter(dir, slot, programs[dir.name].FD())); err != nil {
			return noDevice(fmt.Errorf("add %s filter: %w", dir.name, err))
		}
	}
	return nil
}

// filtered reports whether both filters are there.
func (d *device) filtered(slot uint32) (bool, error) {
	for _, dir := range directions {
		present, err := d.hasFilter(dir, slot)
		if err != nil || !present {
			return false, err
		}
	}
	return true, nil
}

// removeFilters works twice. The qdisc stays: it costs nothing, and others may have put filters into it.
func (d *device) removeFilters(slot uint32) error {
	for _, dir := range directions {
		present, err := d.hasFilter(dir, slot)
		if err != nil {
			return err
		}
		if !present {
			continue
		}
		if err := d.links.FilterDel(d.filter(dir, slot, -1)); err != nil {
			return noDevice(fmt.Errorf("remove %s filter: %w", dir.name, err))
		}
	}
	return nil
}

func (d *device) hasFilter(dir direction, slot uint32) (bool, error) {
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: d.index}}
	filters, err := d.links.FilterList(link, dir.clsact)
	if err != nil {
		return false, noDevice(fmt.Errorf("list %s filters: %w", dir.name, err))
	}
	for _, f := range filters {
		if own, ok := f.(*netlink.BpfFilter); ok && own.Name == filterName && own.Handle == slot {
			return true, nil
		}
	}
	return false, nil
}
