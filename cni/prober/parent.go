// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// below is the interface that a link names: its parent, or the other end of a veth.
type below struct {
	index int
	// netNS is the network namespace of index; nil: that of the link.
	netNS ns.NetNS
}

// belowOf returns the interface below a link in the network namespace of the thread. caller is the
// namespace of the plugin. ok is false if there is none, or if it is in a third namespace.
func belowOf(l netlink.Link, caller ns.NetNS) (b below, ok bool, err error) {
	a := l.Attrs()
	if a.ParentIndex == 0 || a.NetNsID < 0 {
		return below{index: a.ParentIndex}, a.ParentIndex != 0, nil
	}
	id, err := netlink.GetNetNsIdByFd(int(caller.Fd()))
	if err != nil {
		return below{}, false, fmt.Errorf("look for the network namespace of interface %d: %w", a.ParentIndex, err)
	}
	return below{a.ParentIndex, caller}, id == a.NetNsID, nil
}

// do runs fn in the network namespace of the interface.
func (b below) do(fn func() error) error {
	if b.netNS == nil {
		return fn()
	}
	return b.netNS.Do(func(ns.NetNS) error { return fn() })
}

// Parent is the interface of the machine on which a container's interface stands.
type Parent struct {
	Name string
	// Addrs are its addresses. The container's frames do not reach the stack that has them.
	Addrs []netip.Addr
}

// ParentOf returns the parent of a macvlan or ipvlan in the network namespace at netNS, and the zero
// value if the interface is none, or does not exist yet. A VLAN is another segment than its parent's.
func ParentOf(netNS, iface string) (p Parent, err error) {
	err = inside(netNS, func(caller ns.NetNS) error {
		l, err := find(netlink.LinkByName, iface)
		if err != nil {
			return err
		}
		switch l.Type() {
		case "macvlan", "macvtap", "ipvlan":
		default:
			return nil
		}
		b, ok, err := belowOf(l, caller)
		if err != nil || !ok {
			return err
		}
		return b.do(func() error { return p.read(b.index) })
	})
	if errors.Is(err, ErrNoInterface) {
		return Parent{}, nil
	}
	return p, err
}

// read reads the parent in the network namespace of the thread.
func (p *Parent) read(index int) error {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("find interface %d: %w", index, err)
	}
	p.Name = l.Attrs().Name
	addrs, err := wholelist.Of(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", p.Name, err)
	}
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			p.Addrs = append(p.Addrs, addr.Unmap())
		}
	}
	return nil
}
