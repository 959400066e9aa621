package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
)

// Kernels before 6.6 have no tcx. There an observer sits in filters of a clsact qdisc, like a staged guard; but nobody
// else is in the host's namespace and a parent does not move, so they last as long as the parent does. They outlive
// the agent without a pin: the parent's directory is empty, and tells that there is an observer.

// openParent opens a parent in the calling thread's network namespace.
func openParent(index int) (*device, error) {
	d, err := openNetNS("")
	if err != nil {
		return nil, err
	}
	d.index = index
	return d, nil
}

// observeByFilters puts the observer before all other filters, where it is not there already.
func (k *Kernel) observeByFilters(parent int) error {
	dev, err := openParent(parent)
	if err != nil {
		return err
	}
	defer dev.close()
	if err := os.MkdirAll(string(k.dir.observer(parent)), 0o700); err != nil {
		return err
	}
	if err := dev.addClsact(); err != nil {
		return err
	}
	var programs pair
	defer func() { programs.close() }()
	for _, d := range directions {
		filters, err := dev.filters(d)
		if err != nil {
			return err
		}
		if len(filters) > 0 && isOurs(filters[0], observerFilter) {
			continue
		}
		if programs == nil {
			if programs, err = k.loadObserverPair(uint32(parent)); err != nil {
				return err
			}
		}
		// The new one is before the others from its first frame on; only then the old one goes.
		if err := dev.putFilter(dev.filter(d, observerFilter, unusedHandle(filters), programs[d.name].FD())); err != nil {
			return err
		}
		if err := dev.removeObserverFilters(d, filters); err != nil {
			return err
		}
	}
	return nil
}

func unusedHandle(filters []netlink.Filter) uint32 {
	var greatest uint32
	for _, f := range filters {
		greatest = max(greatest, f.Attrs().Handle)
	}
	return greatest + 1
}

// removeObserverFilters removes the observer's among these filters.
func (d *device) removeObserverFilters(dir direction, filters []netlink.Filter) error {
	for _, f := range filters {
		if !isOurs(f, observerFilter) {
			continue
		}
		if err := d.removeFilter(dir, observerFilter, f.Attrs().Handle); err != nil {
			return err
		}
	}
	return nil
}

// removeObserverFilters takes the observer's filters off a parent; one that is gone, or has none, is no error.
func (k *Kernel) removeObserverFilters(parent int) error {
	return onParent(parent, func(dev *device, d direction, filters []netlink.Filter) error {
		return dev.removeObserverFilters(d, filters)
	})
}

// reloadObserverFilters puts this version's programs into the observer's filters, in place.
func (k *Kernel) reloadObserverFilters(parent int) error {
	var programs pair
	defer func() { programs.close() }()
	return onParent(parent, func(dev *device, d direction, filters []netlink.Filter) (err error) {
		for _, f := range filters {
			if !isOurs(f, observerFilter) {
				continue
			}
			if programs == nil {
				if programs, err = k.loadObserverPair(uint32(parent)); err != nil {
					return err
				}
			}
			if err := dev.putFilter(dev.filter(d, observerFilter, f.Attrs().Handle, programs[d.name].FD())); err != nil {
				return err
			}
		}
		return nil
	})
}

// firstFilters are the numbers of the observer's programs, 0 where another filter, or none, is the first.
func firstFilters(parent int) (ids [len(directions)]uint32, err error) {
	i := 0
	err = onParent(parent, func(_ *device, _ direction, filters []netlink.Filter) error {
		if len(filters) > 0 && isOurs(filters[0], observerFilter) {
			ids[i] = uint32(filters[0].(*netlink.BpfFilter).Id)
		}
		i++
		return nil
	})
	return ids, err
}

// onParent visits the filters of each direction of a parent that lives.
func onParent(parent int, visit func(*device, direction, []netlink.Filter) error) error {
	dev, err := openParent(parent)
	if err != nil {
		return err
	}
	defer dev.close()
	for _, d := range directions {
		filters, err := dev.filters(d)
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
