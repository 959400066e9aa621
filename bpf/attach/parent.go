// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// OpenParent opens a parent in the calling thread's network namespace.
func OpenParent(index int) (*Device, error) {
	d, err := openNetNS("")
	if err != nil {
		return nil, err
	}
	d.Index = index
	return d, nil
}

// UnusedHandle returns a handle that none of the filters has.
func UnusedHandle(filters []netlink.Filter) uint32 {
	var greatest uint32
	for _, f := range filters {
		greatest = max(greatest, f.Attrs().Handle)
	}
	return greatest + 1
}

// FirstFilters returns the IDs of the observer's programs, 0 where it is not the first filter.
func FirstFilters(parent int) (ids [len(Directions)]uint32, err error) {
	i := 0
	err = OnParent(parent, func(_ *Device, _ Direction, filters []netlink.Filter) error {
		if len(filters) > 0 && IsNamed(filters[0], ObserverFilter) {
			ids[i] = uint32(filters[0].(*netlink.BpfFilter).Id)
		}
		i++
		return nil
	})
	return ids, err
}

// OnParent calls visit with the filters of each direction. A missing parent is no error.
func OnParent(parent int, visit func(*Device, Direction, []netlink.Filter) error) error {
	dev, err := OpenParent(parent)
	if err != nil {
		return err
	}
	defer dev.Close()
	for _, d := range Directions {
		filters, err := dev.Filters(d)
		if err == nil {
			err = visit(dev, d, filters)
		}
		if errors.Is(err, ErrNoDevice) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("filters of ifindex %d: %w", parent, err)
		}
	}
	return nil
}
