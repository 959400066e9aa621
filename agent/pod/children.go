// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// removals bounds how often Remove looks again: a process in the namespace may make interfaces meanwhile.
const removals = 100

// ID returns the number of the namespace at path in the node's namespace, and gives it one if it has none.
func (f *Finder) ID(path string) (int, error) {
	inside, err := open(path)
	if err != nil {
		return 0, err
	}
	defer inside.Close()
	id, err := netlink.GetNetNsIdByFd(int(inside))
	if err == nil && id < 0 {
		if err = netlink.SetNetNsIdByFd(int(inside), -1); err == nil || errors.Is(err, unix.EEXIST) {
			id, err = netlink.GetNetNsIdByFd(int(inside))
		}
	}
	if err != nil {
		return 0, fmt.Errorf("give network namespace %s a number: %w", path, err)
	}
	return id, nil
}

// Children returns the interfaces in the namespace at path that have a parent in the node's namespace.
func (f *Finder) Children(path string) (children []Interface, err error) {
	err = f.inside(path, func(links *netlink.Handle, inside []Interface) error {
		children = inside
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the interfaces in %s: %w", path, err)
	}
	return children, nil
}

// Remove removes the interface with an index from the namespace at path, if it has the parent. With index
// 0 it removes all interfaces of the parent: a process in the namespace can make another only while one
// is left.
func (f *Finder) Remove(path string, parent, index int) error {
	for range removals {
		removed := false
		err := f.inside(path, func(links *netlink.Handle, inside []Interface) error {
			for _, i := range inside {
				if i.Parent.Index != parent || index != 0 && index != i.Index {
					continue
				}
				removed = true
				link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: i.Name, Index: i.Index}}
				if err := links.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("remove the interfaces of parent %d from %s: %w", parent, path, err)
		}
		if !removed {
			return nil
		}
	}
	return fmt.Errorf("remove the interfaces of parent %d from %s: there are new ones after %d removals", parent, path, removals)
}

// inside calls do with a handle in the namespace at path, and its interfaces with a parent here.
func (f *Finder) inside(path string, do func(*netlink.Handle, []Interface) error) error {
	return f.at(path, func(links *netlink.Handle, hostID int) error {
		all, err := links.LinkList()
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		var children []Interface
		for _, link := range all {
			attrs := link.Attrs()
			if !hasParent(kind(link)) || attrs.NetNsID < 0 || attrs.NetNsID != hostID {
				continue
			}
			child := interfaceOf(link)
			child.Source, child.Parent = isSource(link), Parent{Index: attrs.ParentIndex}
			children = append(children, child)
		}
		return do(links, children)
	})
}

// isSource reports whether a macvlan takes frames by their source.
func isSource(link netlink.Link) bool {
	switch l := link.(type) {
	case *netlink.Macvlan:
		return l.Mode == netlink.MACVLAN_MODE_SOURCE
	case *netlink.Macvtap:
		return l.Mode == netlink.MACVLAN_MODE_SOURCE
	}
	return false
}
