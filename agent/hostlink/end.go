// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// putEnds gives the pod's end of a host link its addresses. The kernel must neither choose nor
// announce them: the IPv4 one has the scope host, no program sends multicast there, and without ND
// the IPv6 one joins no group.
func putEnds(links *netlink.Handle, link netlink.Link, ends []netip.Addr, m mode) error {
	name := link.Attrs().Name
	if link.Attrs().RawFlags&(unix.IFF_NOARP|unix.IFF_MULTICAST) != unix.IFF_NOARP {
		if m == look {
			return broken("%s has ARP or multicast", name)
		}
		// With ARP off, the kernel forgets the neighbours of the link.
		if err := errors.Join(links.LinkSetARPOff(link), links.LinkSetMulticastOff(link)); err != nil {
			return fmt.Errorf("set ARP and multicast off on %s: %w", name, err)
		}
	}
	found, err := links.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", name, err)
	}
	for _, end := range ends {
		if !hasAddress(found, end) {
			if m == look {
				return broken("%s does not have %s", name, end)
			}
			a := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(end, end.BitLen())), Scope: unix.RT_SCOPE_HOST, Flags: unix.IFA_F_NODAD}
			if err := links.AddrReplace(link, a); err != nil {
				return fmt.Errorf("add %s to %s: %w", end, name, err)
			}
		}
		if m == mend && end.Is4() { // the kernel adds this route with the address, and when the link goes up
			local := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(end, end.BitLen())), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST}
			if err := links.RouteDel(local); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("remove %s from the local table: %w", end, err)
			}
		}
	}
	return nil
}
