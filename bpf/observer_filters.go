// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"os"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
)

// Kernels before 6.6 have no tcx. There an observer is in filters of a clsact qdisc, like a staged
// guard. No pod has access to the host's namespace and a parent does not move, so the filters last
// as long as the parent, and outlive the agent without a pin. The parent's empty pin directory
// records that it has an observer.

// putFilters puts the observer before all other filters, where it is not there already.
func (o *Observers) putFilters(parent int) error {
	dev, err := attach.OpenParent(parent)
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := os.MkdirAll(string(o.pins.Observer(parent)), 0o700); err != nil {
		return err
	}
	if err := dev.AddClsact(); err != nil {
		return err
	}
	var programs attach.Programs
	defer func() { programs.Close() }()
	for _, d := range attach.Directions {
		filters, err := dev.Filters(d)
		if err != nil {
			return err
		}
		if len(filters) > 0 && attach.IsNamed(filters[0], attach.ObserverFilter) {
			continue
		}
		if programs == nil {
			if programs, err = o.load(uint32(parent)); err != nil {
				return err
			}
		}
		// The new filter runs before the others from its first frame on. Remove the old one after that.
		if err := dev.PutFilter(dev.Filter(d, attach.ObserverFilter, attach.UnusedHandle(filters), programs[d.Name].FD())); err != nil {
			return err
		}
		if err := dev.RemoveNamed(d, attach.ObserverFilter, filters); err != nil {
			return err
		}
	}
	return nil
}

// removeFilters removes the observer's filters from a parent. A missing parent or filter is no error.
func (o *Observers) removeFilters(parent int) error {
	return attach.OnParent(parent, func(dev *attach.Device, d attach.Direction, filters []netlink.Filter) error {
		return dev.RemoveNamed(d, attach.ObserverFilter, filters)
	})
}

// reloadFilters replaces the programs of the observer's filters by this version's, in place.
func (o *Observers) reloadFilters(parent int) error {
	var programs attach.Programs
	defer func() { programs.Close() }()
	return attach.OnParent(parent, func(dev *attach.Device, d attach.Direction, filters []netlink.Filter) (err error) {
		for _, f := range filters {
			if !attach.IsNamed(f, attach.ObserverFilter) {
				continue
			}
			if programs == nil {
				if programs, err = o.load(uint32(parent)); err != nil {
					return err
				}
			}
			if err := dev.PutFilter(dev.Filter(d, attach.ObserverFilter, f.Attrs().Handle, programs[d.Name].FD())); err != nil {
				return err
			}
		}
		return nil
	})
}
