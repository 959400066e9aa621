// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/test/network"
)

// addRouter connects the underlay, the management network and a host that is on neither.
func (w *wires) addRouter(o Options) (err error) {
	if err := w.sw.AddBridge(outsideBridge); err != nil {
		return err
	}
	if w.router, err = network.Create(o.routerName()); err != nil {
		return err
	}
	if err := w.router.Forward(); err != nil {
		return err
	}
	if err := w.plugManagement(o, w.router, "router", routerHost); err != nil {
		return err
	}
	for _, leg := range []struct {
		iface, port, bridge string
		addresses           []netip.Prefix
	}{
		{UnderlayInterface, underlayPort("router"), underlayBridge, o.ofFamilies(slices.Concat(o.Gateways, o.MoreGateways)...)},
		{hostInterface, "out-router", outsideBridge, o.outsideNetworks()},
	} {
		if err := w.router.Plug(leg.iface, nil, w.sw, leg.port, leg.bridge); err != nil {
			return err
		}
		for _, a := range leg.addresses {
			if err := w.router.AddAddr(leg.iface, a); err != nil {
				return err
			}
		}
	}
	return errors.Join(routeByRouter(o, w.controlPlane), routeToPods(o, w.controlPlane, 0), routeToPods(o, w.router, 0), w.addOutside(o))
}

// addOutside plugs in the host behind the router.
func (w *wires) addOutside(o Options) (err error) {
	if w.outside, err = network.Create(o.outsideName()); err != nil {
		return err
	}
	if err := w.outside.Plug(hostInterface, nil, w.sw, "out-host", outsideBridge); err != nil {
		return err
	}
	for _, router := range o.outsideNetworks() {
		if err := w.outside.AddAddr(hostInterface, netip.PrefixFrom(nth(router, outsideHost), router.Bits())); err != nil {
			return err
		}
		if err := w.outside.AddRoute(netip.Prefix{}, router.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// routeByRouter gives a host of the management network the routes to the underlay and to the
// outside, and the default route of IPv6. A cluster IP needs a default route: kube-proxy changes the
// destination only after the kernel has chosen a route.
func routeByRouter(o Options, ns *network.Namespace) error {
	far := o.subnets(slices.Concat(o.Gateways, o.MoreGateways))
	for _, n := range o.outsideNetworks() {
		far = append(far, n.Masked())
	}
	for _, router := range hostIn(o.management(), routerHost) {
		for _, dst := range far {
			if dst.Addr().Is4() != router.Addr().Is4() {
				continue
			}
			if err := ns.AddRoute(dst, router.Addr()); err != nil {
				return err
			}
		}
		if router.Addr().Is4() {
			continue
		}
		if err := ns.AddRoute(netip.Prefix{}, router.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// addressUnderlay gives a node its addresses on the underlay, its only network.
func (w *wires) addressUnderlay(o Options, n int) error {
	ns := w.nodes[n-1]
	for _, a := range o.nodeAddresses(n) {
		if err := ns.AddAddr(UnderlayInterface, a); err != nil {
			return err
		}
	}
	for _, gateway := range o.ofFamilies(o.Gateways...) {
		if err := ns.AddRoute(netip.Prefix{}, gateway.Addr()); err != nil {
			return err
		}
	}
	return ns.Forward()
}

// Outside returns the host behind the router, with an address of each family. It is no neighbour of
// any pod or node.
func (c *Cluster) Outside() (*Host, []netip.Addr, error) {
	if c.wires.outside == nil {
		return nil, nil, fmt.Errorf("cluster %s has no router, and no outside host", c.Options.Prefix)
	}
	mac, err := c.wires.outside.MAC(hostInterface)
	if err != nil {
		return nil, nil, err
	}
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
func routedConfig(n int) ([]byte, error) {
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, r := range podRanges(n) {
		ranges = append(ranges, []map[string]string{{"subnet": r.String()}})
		routes = append(routes, map[string]string{"dst": netip.PrefixFrom(r.Addr(), 0).Masked().String()})
	}
	return json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0", "name": "routed", "type": "ptp",
		"ipam": map[string]any{"type": "host-local", "ranges": ranges, "routes": routes},
	}, "", "  ")
}

// routeToPods gives a host of the management network the routes to the pods of all nodes in the routed
// network, except those of the node self.
func routeToPods(o Options, ns *network.Namespace, self int) error {
	if o.SingleNIC {
		return nil
	}
	for n := 1; n <= o.Nodes; n++ {
		if n == self {
			continue
		}
		for family, node := range o.nodeAddresses(n) {
			if err := ns.AddRoute(o.ofFamilies(podRanges(n)...)[family], node.Addr()); err != nil {
				return err
			}
		}
	}
	return nil
}
