// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// servicesLink is the interface on which kube-proxy in mode IPVS puts the addresses of all Services.
const servicesLink = "kube-ipvs0"

// nodeAddresses returns the addresses by which hosts reach the node.
func (l *Links) nodeAddresses() ([]netip.Addr, error) {
	links, err := wholelist.Of(l.node.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the interfaces of the node: %w", err)
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	addrs, err := wholelist.Of(func() ([]netlink.Addr, error) { return l.node.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses of the node: %w", err)
	}
	var found []netip.Addr
	for _, a := range addrs {
		if addr := addrOf(a.IP); isOfNode(addr, a.Scope, names[a.LinkIndex]) {
			found = append(found, addr)
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return slices.Compact(found), nil
}

// isOfNode reports whether other hosts may reach the node by an address of one of its links.
func isOfNode(addr netip.Addr, scope int, link string) bool {
	return addr.IsValid() && !addr.IsLoopback() && !(addr.Is6() && addr.IsLinkLocalUnicast()) &&
		scope != unix.RT_SCOPE_HOST && link != servicesLink && !strings.HasPrefix(link, NodePrefix)
}
