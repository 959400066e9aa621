// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetMAC sets the MAC of the interface called name in the namespace at path. The error wraps EADDRINUSE
// if another macvlan of its parent has the MAC and is up, or one of the package's errors if one
// applies.
func (f *Finder) SetMAC(path, name string, mac net.HardwareAddr) error {
	err := f.change(path, name, func(links *netlink.Handle, link netlink.Link) error {
		return links.LinkSetHardwareAddr(link, mac)
	})
	if err != nil {
		return fmt.Errorf("set the MAC of interface %s in %s to %s: %w", name, path, mac, err)
	}
	return nil
}

// SetDown sets the interface called name in the namespace at path down. Then another interface of its
// parent may have its MAC. The error wraps one of the package's errors if one applies.
func (f *Finder) SetDown(path, name string) error {
	err := f.change(path, name, func(links *netlink.Handle, link netlink.Link) error { return links.LinkSetDown(link) })
	if err != nil {
		return fmt.Errorf("set interface %s in %s down: %w", name, path, err)
	}
	return nil
}

// change calls do with a netlink socket in the namespace at path, and with the interface called name.
func (f *Finder) change(path, name string, do func(*netlink.Handle, netlink.Link) error) error {
	links, err := f.links(path)
	if err != nil {
		return err
	}
	defer links.Close()
	link, err := linkOf(links, name)
	if err != nil {
		return err
	}
	return do(links, link)
}

// linkOf returns the link called name, or ErrNoInterface.
func linkOf(links *netlink.Handle, name string) (netlink.Link, error) {
	link, err := links.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, ErrNoInterface
	}
	if err != nil {
		return nil, fmt.Errorf("read the link: %w", err)
	}
	return link, nil
}

// at calls do with a netlink socket in the namespace at path, and with the ID that the node's namespace
// has there.
func (f *Finder) at(path string, do func(links *netlink.Handle, hostID int) error) error {
	links, err := f.links(path)
	if err != nil {
		return err
	}
	defer links.Close()
	// Ask for the ID before the links: the library leaves the acknowledgement of this
	// request in the socket, and the next request of this kind would read it.
	hostID, err := links.GetNetNsIdByFd(int(f.host))
	if err != nil {
		return fmt.Errorf("ask for the ID of the node's network namespace: %w", err)
	}
	return do(links, hostID)
}

// links opens a netlink socket in the namespace of a pod. The caller closes it.
func (f *Finder) links(path string) (*netlink.Handle, error) {
	inside, err := open(path)
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	if inside.Equal(f.host) {
		return nil, ErrHostNetNS
	}
	links, err := netlink.NewHandleAt(inside, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket in it: %w", err)
	}
	return links, nil
}
