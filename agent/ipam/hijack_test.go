// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/apis/poolset"
)

func TestRoutesThatTakePacketsFromTheirProperWay(t *testing.T) {
	prefixes := func(all ...string) (found []netip.Prefix) {
		for _, p := range all {
			found = append(found, netip.MustParsePrefix(p))
		}
		return found
	}
	near := Nearby{Services: prefixes("10.96.0.0/12", "fd00:96::/108"), Node: prefixes("172.16.4.0/22", "fd00:16::/64")}
	const first, other = true, false // the interface of the default route, and another one
	for name, c := range map[string]struct {
		dst, gw, subnet string
		isDefault       bool
		hasGateway      bool
		want            string // "": none
	}{
		"a default route":         {"0.0.0.0/0", "10.0.0.1", "10.0.0.0/24", other, true, ""},
		"a default route of IPv6": {"::/0", "fd00::1", "fd00::/64", other, true, ""},
		"another network":         {"192.168.0.0/16", "10.0.0.1", "10.0.0.0/24", other, true, ""},

		"the service CIDR": {"10.96.0.0/12", "10.0.0.1", "10.0.0.0/24", first, true,
			"route 10.96.0.0/12 via 10.0.0.1 takes packets from the service CIDR 10.96.0.0/12"},
		"a part of the service CIDR": {"10.100.0.0/16", "10.0.0.1", "10.0.0.0/24", first, true,
			"route 10.100.0.0/16 via 10.0.0.1 takes packets from the service CIDR 10.96.0.0/12"},
		"one Service, on link": {"10.96.0.10/32", "", "10.0.0.0/24", first, false,
			"route 10.96.0.10/32 takes packets from the service CIDR 10.96.0.0/12"},
		"a part of the service CIDR of IPv6": {"fd00:96::/112", "fd00::1", "fd00::/64", first, true,
			"route fd00:96::/112 via fd00::1 takes packets from the service CIDR fd00:96::/108"},
		"more than the service CIDR, beside the default route": {"10.0.0.0/8", "10.0.0.1", "10.0.0.0/24", first, true, ""},
		"more than the service CIDR, on another interface": {"10.0.0.0/8", "10.0.0.1", "10.0.0.0/24", other, true,
			"route 10.0.0.0/8 via 10.0.0.1 takes packets from the service CIDR 10.96.0.0/12"},

		"the node's subnet": {"172.16.4.0/22", "10.0.0.1", "10.0.0.0/24", first, true,
			"route 172.16.4.0/22 via 10.0.0.1 takes packets from the subnet of the node 172.16.4.0/22"},
		"a part of the node's subnet": {"172.16.5.0/24", "10.0.0.1", "10.0.0.0/24", first, true,
			"route 172.16.5.0/24 via 10.0.0.1 takes packets from the subnet of the node 172.16.4.0/22"},
		"more than the node's subnet, beside the default route": {"172.16.0.0/12", "10.0.0.1", "10.0.0.0/24", first, true, ""},
		"more than the node's subnet, on another interface": {"172.16.0.0/12", "10.0.0.1", "10.0.0.0/24", other, true,
			"route 172.16.0.0/12 via 10.0.0.1 takes packets from the subnet of the node 172.16.4.0/22"},
		"a neighbour of the node's subnet": {"172.16.8.0/22", "10.0.0.1", "10.0.0.0/24", other, true, ""},

		"the pool's subnet": {"192.168.5.0/24", "192.168.5.1", "192.168.5.0/24", first, true,
			"route 192.168.5.0/24 via 192.168.5.1 takes packets from the subnet of the pool 192.168.5.0/24"},
		"a part of it through the pool's gateway": {"192.168.5.128/25", "", "192.168.5.0/24", other, true,
			"route 192.168.5.128/25 takes packets from the subnet of the pool 192.168.5.0/24"},
		"a part of it on link":                       {"192.168.5.128/25", "", "192.168.5.0/24", other, false, ""},
		"more than it, on the default interface":     {"192.168.0.0/16", "192.168.5.1", "192.168.5.0/24", first, true, ""},
		"more than it, on another interface":         {"192.168.0.0/16", "192.168.5.1", "192.168.5.0/24", other, true, ""},
		"node and pool have one subnet, and a wider": {"172.16.0.0/12", "172.16.4.1", "172.16.4.0/22", other, true, ""},
		"node and pool have one subnet, and a part": {"172.16.5.0/24", "172.16.4.1", "172.16.4.0/22", other, true,
			"route 172.16.5.0/24 via 172.16.4.1 takes packets from the subnet of the pool 172.16.4.0/22"},
	} {
		t.Run(name, func(t *testing.T) {
			r := poolset.Route{Dst: netip.MustParsePrefix(c.dst)}
			if c.gw != "" {
				r.Gateway = netip.MustParseAddr(c.gw)
			}
			on := Uplink{Subnet: netip.MustParsePrefix(c.subnet), Gateway: c.hasGateway, Default: c.isDefault}
			harmless := poolset.Route{Dst: netip.MustParsePrefix("198.51.100.0/24")}
			h, ok := Hijacked([]poolset.Route{harmless, r}, on, near)
			if ok != (c.want != "") || ok && h.String() != c.want {
				t.Errorf("got %q %v, want %q", h, ok, c.want)
			}
		})
	}
}
