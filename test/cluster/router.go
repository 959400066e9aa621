// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// addRouter connects the underlay, the management network and a host that is on neither.
func (w *wires) addRouter(o Options) {
	must.OK(w.sw.AddBridge(outsideBridge))
	w.router = must.Value(network.Create(o.routerName()))
	must.OK(w.router.Forward())
	w.plugManagement(o, w.router, "router", routerHost)
	for _, leg := range []struct {
		iface, port, bridge string
		addresses           []netip.Prefix
	}{
		{UnderlayInterface, underlayPort("router"), underlayBridge, o.ofFamilies(slices.Concat(o.Gateways, o.MoreGateways)...)},
		{hostInterface, "out-router", outsideBridge, o.outsideNetworks()},
	} {
		must.OK(w.router.Plug(leg.iface, nil, w.sw, leg.port, leg.bridge))
		for _, a := range leg.addresses {
			must.OK(w.router.AddAddr(leg.iface, a))
		}
	}
	routeByRouter(o, w.controlPlane)
	routeToPods(o, w.controlPlane, 0)
	routeToPods(o, w.router, 0)
	w.addOutside(o)
}

// addOutside plugs in the host behind the router.
func (w *wires) addOutside(o Options) {
	w.outside = must.Value(network.Create(o.outsideName()))
	must.OK(w.outside.Plug(hostInterface, nil, w.sw, "out-host", outsideBridge))
	for _, router := range o.outsideNetworks() {
		must.OK(w.outside.AddAddr(hostInterface, netip.PrefixFrom(nth(router, outsideHost), router.Bits())))
		must.OK(w.outside.AddRoute(netip.Prefix{}, router.Addr()))
	}
}

// routeByRouter gives a host of the management network the routes to the underlay and to the
// outside, and the default route of IPv6. A cluster IP needs a default route: kube-proxy changes the
// destination only after the kernel has chosen a route.
func routeByRouter(o Options, ns *network.Namespace) {
	far := o.subnets(slices.Concat(o.Gateways, o.MoreGateways))
	for _, n := range o.outsideNetworks() {
		far = append(far, n.Masked())
	}
	for _, router := range hostIn(o.management(), routerHost) {
		for _, dst := range far {
			if dst.Addr().Is4() == router.Addr().Is4() {
				must.OK(ns.AddRoute(dst, router.Addr()))
			}
		}
		if router.Addr().Is6() {
			must.OK(ns.AddRoute(netip.Prefix{}, router.Addr()))
		}
	}
}

// addressUnderlay gives a node its addresses on the underlay, its only network.
func (w *wires) addressUnderlay(o Options, n int) {
	ns := w.nodes[n-1]
	for _, a := range o.nodeAddresses(n) {
		must.OK(ns.AddAddr(UnderlayInterface, a))
	}
	for _, gateway := range o.ofFamilies(o.Gateways...) {
		must.OK(ns.AddRoute(netip.Prefix{}, gateway.Addr()))
	}
	must.OK(ns.Forward())
}

// Outside returns the host behind the router, with an address of each family. It is no neighbour of
// any pod or node.
func (c *Cluster) Outside() (_ *Host, _ []netip.Addr, err error) {
	defer must.Catch(&err)
	must.That(c.wires.outside != nil, "cluster %s has no router, and no outside host", c.Options.Prefix)
	mac := must.Value(c.wires.outside.MAC(hostInterface))
	addresses := addrs(hostIn(c.Options.outsideNetworks(), outsideHost))
	return &Host{Namespace: c.wires.outside, Addr: addresses[0], MAC: mac}, addresses, nil
}

// podRanges returns the ranges of a node's pods in the routed network.
func podRanges(n int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(n), 0}), 24),
		netip.MustParsePrefix(fmt.Sprintf("fd44:0:0:%x::/64", n)),
	}
}

// RoutedPods returns the networks that hold the addresses of all pods in the routed network.
func RoutedPods() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd44::/48")}
}

// routedConfig returns the configuration of the routed network on a node, without Fenceline: a veth
// pair for each pod, host-local with ranges for each node, and routes between the nodes, as in kind.
// A bridge would need br_netfilter for Services of the same node. It is no list, because Multus
// loses the ranges of a list before DEL (k8snetworkplumbingwg/multus-cni issue 1449).
func routedConfig(n int) []byte {
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, r := range podRanges(n) {
		ranges = append(ranges, []map[string]string{{"subnet": r.String()}})
		routes = append(routes, map[string]string{"dst": netip.PrefixFrom(r.Addr(), 0).Masked().String()})
	}
	return must.Value(json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0", "name": "routed", "type": "ptp",
		"ipam": map[string]any{"type": "host-local", "ranges": ranges, "routes": routes},
	}, "", "  "))
}

// routeToPods gives a host of the management network the routes to the pods of all nodes in the routed
// network, except those of the node self.
func routeToPods(o Options, ns *network.Namespace, self int) {
	for n := 1; n <= o.Nodes && !o.SingleNIC; n++ {
		if n == self {
			continue
		}
		for family, node := range o.nodeAddresses(n) {
			must.OK(ns.AddRoute(o.ofFamilies(podRanges(n)...)[family], node.Addr()))
		}
	}
}
