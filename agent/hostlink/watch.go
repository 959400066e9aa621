// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/wholelist"
)

// quiet is how long followAddresses waits after an event for more of them. Each router advertisement and each
// restart of a network service makes several.
const quiet = 100 * time.Millisecond

// AddressesChanged makes Run compare the addresses of the node soon.
func (l *Links) AddressesChanged() { l.changed.Up() }

// followAddresses makes Run repair everything after changes of the node's addresses.
func (l *Links) followAddresses(ctx context.Context) {
	_ = loop.Loop{Clock: l.Clock, Period: repairPeriod, Wake: l.changed, Gather: quiet}.Every(ctx, func(context.Context) { l.look() })
}

// look makes Run repair all if the node's addresses differ. Most events only report lifetimes.
func (l *Links) look() {
	now, err := nodeAddresses(l.node)
	if err != nil || !slices.Equal(l.seen, now) {
		l.WakeAll()
	}
	l.seen = now
}

// servicesLink is the interface on which kube-proxy in mode IPVS puts the addresses of all Services.
const servicesLink = "kube-ipvs0"

// nodeAddresses returns the addresses by which hosts reach the node.
func nodeAddresses(h *netlink.Handle) ([]netip.Addr, error) {
	links, err := wholelist.Of(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the interfaces of the node: %w", err)
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	addrs, err := wholelist.Of(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
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
