// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// A network of veth pairs has made eth0, as the plugin ptp does: all hosts are behind its gateway, those
// of its subnet too. macvlan adds its default routes to those of eth0.
func TestTheUnderlayTakesTheDefaultRoutesFromAVethPair(t *testing.T) {
	r := newRig(t)
	pod, other := r.namespace("a"), r.namespace("other")
	check.OK(r, other.AddBridge("br0"))
	check.OK(r, pod.SetUp("lo", true))
	check.OK(r, pod.Plug("eth0", nil, other, "port", "br0"))
	eth0 := check.Value(pod.Links().LinkByName("eth0"))(r)
	for _, c := range []struct{ address, gateway string }{{"10.244.0.7/24", "10.244.0.1"}, {"fd44::7/64", "fd44::1"}} {
		address, gateway := netip.MustParsePrefix(c.address), netip.MustParseAddr(c.gateway)
		check.OK(r, pod.AddAddr("eth0", address))
		own, link := netip.PrefixFrom(gateway, gateway.BitLen()), eth0.Attrs().Index
		check.OK(r, pod.Links().RouteDel(&netlink.Route{LinkIndex: link, Dst: ipNet(address.Masked()), Scope: netlink.SCOPE_LINK}))
		check.OK(r, pod.Links().RouteAdd(&netlink.Route{LinkIndex: link, Dst: ipNet(own), Scope: netlink.SCOPE_LINK}))
		check.OK(r, pod.Links().RouteAdd(&netlink.Route{LinkIndex: link, Dst: ipNet(address.Masked()), Gw: gateway.AsSlice()}))
		check.OK(r, pod.Links().RouteAdd(&netlink.Route{LinkIndex: link, Gw: gateway.AsSlice()}))
	}
	e := r.attach(pod, "a", "net1", "10.0.0.7/24", "fd00::7/64")
	e.Routing.TakesDefault = true
	net1 := check.Value(pod.Links().LinkByName("net1"))(r)
	for _, gw := range e.Routing.Gateways {
		check.OK(r, pod.Links().RouteAppend(&netlink.Route{LinkIndex: net1.Attrs().Index, Gw: gw.AsSlice()}))
	}
	// The pods of the other nodes. The subnet of eth0 has its route already, and that of net1 is the underlay.
	r.pods = prefixes("10.244.0.0/24", "10.245.0.0/16", "10.0.0.0/26", "fd44:0:0:1::/64")
	for range 2 { // a repair changes nothing
		check.OK(r, r.links.Make(e))
		for _, c := range []struct{ from, to, link, via string }{
			{"", "192.0.2.9", "net1", routerAddr4}, {"", "2001:db8::9", "net1", routerAddr6},
			{"", "10.96.0.1", "eth0", "10.244.0.1"}, {"", "fd96::1", "eth0", "fd44::1"},
			{"", nodeAddr4, "eth0", "10.244.0.1"}, {"", nodeAddr6, "eth0", "fd44::1"},
			{"", "10.245.3.9", "eth0", "10.244.0.1"}, {"", "fd44:0:0:1::9", "eth0", "fd44::1"}, {"10.0.0.7", "10.245.3.9", "net1", routerAddr4}, {"", "10.0.0.9", "net1", "invalid IP"},
			{"", "10.244.0.9", "eth0", "10.244.0.1"}, {"", "fd44::9", "eth0", "fd44::1"},
			{"10.244.0.7", "10.244.0.9", "eth0", "10.244.0.1"}, {"fd44::7", "fd44::9", "eth0", "fd44::1"},
			{"10.244.0.7", "192.0.2.9", "eth0", "10.244.0.1"}, {"fd44::7", "2001:db8::9", "eth0", "fd44::1"},
			{"10.0.0.7", "192.0.2.9", "net1", routerAddr4}, {"fd00::7", "2001:db8::9", "net1", routerAddr6},
		} {
			if link, via := leavesBy(t, pod, c.from, c.to); link != c.link || via.String() != c.via {
				t.Errorf("from %q to %s: leaves by %s via %s, want %s via %s", c.from, c.to, link, via, c.link, c.via)
			}
		}
	}
}

// leavesBy returns the interface and the next hop of frames to an address. from may be empty.
func leavesBy(t *testing.T, pod *network.Namespace, from, to string) (link string, via netip.Addr) {
	t.Helper()
	options := &netlink.RouteGetOptions{}
	if from != "" {
		options.SrcAddr = netip.MustParseAddr(from).AsSlice()
	}
	routes, err := pod.Links().RouteGetWithOptions(netip.MustParseAddr(to).AsSlice(), options)
	check.Must(t, err == nil, "from %q to %s: %v", from, to, err)
	on := check.Value(pod.Links().LinkByIndex(routes[0].LinkIndex))(t)
	return on.Attrs().Name, addrOf(routes[0].Gw)
}
