// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/test/check"
)

// The kernel removes an IPv6 route without a look at its source, so the removal of the route with the
// old source would hit the new one.
func TestRoutesStayWhenTheSourceChanges(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.50/24", "fd00::50/64"})
	e := entries[0]
	for _, text := range []string{"10.0.0.51/24", "fd00::51/64"} {
		second := netip.MustParsePrefix(text)
		check.OK(r, pod.AddAddr("eth0", second))
		e.Addresses = append(e.Addresses, journal.Address{Addr: second.Addr()})
		e.Routing.Subnets = append(e.Routing.Subnets, second)
	}
	check.OK(r, r.links.Make(e))
	check.OK(r, r.links.Check(e))

	// The node's preferred address changes.
	check.OK(r, r.node.AddAddr("mgmt0", netip.MustParsePrefix("172.30.0.12/24")))
	check.OK(r, r.node.AddAddr("mgmt0", netip.MustParsePrefix("fd30::12/64")))
	r.links.NodeAddresses = func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("172.30.0.12"), netip.MustParseAddr("fd30::12")}
	}
	check.OK(r, r.links.Make(e))
	check.Is(t, r.links.Check(e), nil, "after another address of the node:")

	// The pod's first addresses are fenced.
	r.guards.fence(e.Addresses[0].Addr.String())
	r.guards.fence(e.Addresses[1].Addr.String())
	check.OK(r, r.links.Make(e))
	check.Is(t, r.links.Check(e), nil, "after a fence of the first addresses:")
}
