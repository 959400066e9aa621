// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/internal/poolset"
)

// Nearby are networks that a pod reaches by other ways than the routes of one interface.
type Nearby struct {
	// Services are the service CIDRs, Node the subnets of the node's own addresses.
	Services, Node []netip.Prefix
}

// Uplink is an interface with an address of a pool, as its routes see it.
type Uplink struct {
	// Subnet of the address. Gateway: the pool has a gateway, the next hop of routes without one.
	Subnet  netip.Prefix
	Gateway bool
	// Default reports whether the pod's default route of this family goes through the interface.
	Default bool
}

// Hijack is a route that takes packets from their proper way.
type Hijack struct {
	Route poolset.Route
	// From is the network whose packets the route takes, What its name for people.
	From netip.Prefix
	What string
}

func (h Hijack) String() string {
	via := ""
	if h.Route.Gateway.IsValid() {
		via = " via " + h.Route.Gateway.String()
	}
	return fmt.Sprintf("route %s%s takes packets from %s %s", h.Route.Dst, via, h.What, h.From)
}

// Hijacked returns the first route that takes packets from their proper way; ok is false if there is
// none. The longest prefix decides where a packet goes, so:
//
//   - A route to a part of a nearby network, or to all of it, takes its packets.
//   - A wider route takes them only from another interface. On the interface of the default route it
//     leads where the default route leads, and the host link has narrower routes.
//   - A route to a part of the subnet of the pool, or to all of it, takes packets for neighbours to a
//     gateway. A wider route does not, since the kernel's own route to the subnet is narrower.
//
// Default routes are not checked.
func Hijacked(routes []poolset.Route, on Uplink, near Nearby) (h Hijack, ok bool) {
	for _, r := range routes {
		if r.Dst.Bits() == 0 {
			continue
		}
		for _, n := range []struct {
			what     string
			prefixes []netip.Prefix
		}{{"the service CIDR", near.Services}, {"the subnet of the node", near.Node}} {
			for _, p := range n.prefixes {
				if p = p.Masked(); p != on.Subnet && (within(r.Dst, p) || !on.Default && within(p, r.Dst)) {
					return Hijack{r, p, n.what}, true
				}
			}
		}
		if (r.Gateway.IsValid() || on.Gateway) && within(r.Dst, on.Subnet) {
			return Hijack{r, on.Subnet, "the subnet of the pool"}, true
		}
	}
	return Hijack{}, false
}

// within reports whether outer has all addresses of inner.
func within(inner, outer netip.Prefix) bool {
	return inner.Bits() >= outer.Bits() && outer.Contains(inner.Addr())
}
