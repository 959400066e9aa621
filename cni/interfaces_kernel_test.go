// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// The gateway of an address is no default route: the plugins that make the
// interface take routes from the answer only, so a later interface does not
// take the pod's traffic from the first.
func TestALaterInterfaceLeavesTheDefaultRouteAlone(t *testing.T) {
	m := newMachine(t)
	m.startAgent(t)
	sandbox, list := namespace(t, "pod"), m.conflist(t, "1.1.0")
	first, later := attach("abc", sandbox), attach("abc", sandbox)
	later.IfName = "net1"
	for _, rt := range []*libcni.RuntimeConf{first, later} {
		if _, err := m.add(t, list, rt); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"0.0.0.0/0 192.0.2.1 eth0", "198.18.0.0/15 203.0.113.254 net1", "198.51.100.0/24 192.0.2.254 eth0"}
	if got := gateways(t, sandbox); !slices.Equal(got, want) {
		t.Errorf("with both interfaces %q, want %q", got, want)
	}
	check.OK(t, m.del(t, list, later))
	want = []string{"0.0.0.0/0 192.0.2.1 eth0", "198.51.100.0/24 192.0.2.254 eth0"}
	if got := gateways(t, sandbox); !slices.Equal(got, want) {
		t.Errorf("without the later one %q, want %q", got, want)
	}
}

// gateways lists the IPv4 routes with a gateway as "destination gateway interface".
func gateways(t *testing.T, ns *network.Namespace) []string {
	t.Helper()
	routes, err := ns.Links().RouteList(nil, netlink.FAMILY_V4)
	check.OK(t, err)
	var found []string
	for _, r := range routes {
		if r.Gw == nil {
			continue
		}
		link, err := ns.Links().LinkByIndex(r.LinkIndex)
		check.OK(t, err)
		found = append(found, r.Dst.String()+" "+r.Gw.String()+" "+link.Attrs().Name)
	}
	slices.Sort(found)
	return found
}
