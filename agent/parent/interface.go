// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Exists reports whether an interface has this index, and true if the kernel cannot be asked.
func Exists(index int) bool {
	_, err := netlink.LinkByIndex(index)
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	return !missing
}

// OfNode reports whether this node has the address. A link-local address must be on the parent, any
// other address may be on any interface.
func OfNode(parent int, addr netip.Addr) (bool, error) {
	if !addr.IsLinkLocalUnicast() {
		subnets, err := SubnetsOf([]netip.Addr{addr})
		return len(subnets) > 0, err
	}
	link, err := netlink.LinkByIndex(parent)
	if err != nil {
		return false, fmt.Errorf("find the parent: %w", err)
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("list the addresses of parent %s: %w", link.Attrs().Name, err)
	}
	return slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(addr.AsSlice()) }), nil
}

// SubnetsOf returns the subnets of those addresses that interfaces of this node have.
func SubnetsOf(addrs []netip.Addr) ([]netip.Prefix, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this node: %w", err)
	}
	var subnets []netip.Prefix
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && slices.Contains(addrs, p.Addr()) {
			subnets = append(subnets, p.Masked())
		}
	}
	return subnets, nil
}

// nameOf returns the name of an interface in the kernel, or another one if it cannot be read.
func nameOf(index int, or string) string {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return or
	}
	return link.Attrs().Name
}

// master returns the index of the interface that a CNI plugin uses as its master: the one of this
// name, or with an empty name the one of the node's default route.
func master(name string) (index int, exists bool, err error) {
	if name != "" {
		return Index(name)
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		// Dst nil selects the default routes.
		filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}
		routes, err := netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE|netlink.RT_FILTER_DST)
		if err != nil {
			return 0, false, fmt.Errorf("look for the default route: %w", err)
		}
		for _, r := range routes {
			if r.LinkIndex != 0 {
				return r.LinkIndex, true, nil
			}
		}
	}
	return 0, false, nil
}
