// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/agent/journal"
)

// The kernel removes an IPv6 route without a look at its source, so the removal of the route with the
// old source would hit the new one.
func TestRoutesStayWhenTheSourceChanges(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.50/24", "fd00::50/64"})
	e := entries[0]
	for _, text := range []string{"10.0.0.51/24", "fd00::51/64"} {
		second := netip.MustParsePrefix(text)
		r.must(pod.AddAddr("eth0", second))
		e.Addresses = append(e.Addresses, journal.Address{Addr: second.Addr()})
		e.Routing.Subnets = append(e.Routing.Subnets, second)
	}
	r.must(r.links.Make(e))
	r.must(r.links.Check(e))

	// The node's preferred address changes.
	r.must(r.node.AddAddr("mgmt0", netip.MustParsePrefix("172.30.0.12/24")))
	r.must(r.node.AddAddr("mgmt0", netip.MustParsePrefix("fd30::12/64")))
	r.links.NodeAddresses = func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("172.30.0.12"), netip.MustParseAddr("fd30::12")}
	}
	r.must(r.links.Make(e))
	if err := r.links.Check(e); err != nil {
		t.Errorf("after another address of the node: %v", err)
	}

	// The pod's first addresses are fenced.
	r.guards.fence(e.Addresses[0].Addr.String())
	r.guards.fence(e.Addresses[1].Addr.String())
	r.must(r.links.Make(e))
	if err := r.links.Check(e); err != nil {
		t.Errorf("after a fence of the first addresses: %v", err)
	}
}
