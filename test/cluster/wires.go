// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// wires are the namespaces of a cluster and the cables between them.
type wires struct {
	sw, controlPlane *network.Namespace
	nodes            []*network.Namespace // nodes[0] is n1
	router, outside  *network.Namespace   // nil without Gateways
}

// layWires builds the network of a cluster from nothing.
func layWires(o Options) (_ *wires, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("lay wires: %w", err), cutWires(o))
		}
	}()
	defer must.Catch(&err)
	w := &wires{sw: must.Value(network.Create(o.switchName()))}
	for _, bridge := range []string{managementBridge, underlayBridge} {
		must.OK(w.sw.AddBridge(bridge))
	}
	if o.Snooping {
		must.OK(w.sw.Snoop(underlayBridge))
	}
	w.plugMachine(o)
	w.controlPlane = must.Value(network.Create(o.controlPlaneName()))
	w.plugManagement(o, w.controlPlane, "cp", controlPlaneHost)
	if len(o.Gateways) > 0 {
		w.addRouter(o)
	}
	for n := 1; n <= o.Nodes; n++ {
		w.nodes = append(w.nodes, must.Value(network.Create(o.nodeName(n))))
		w.plugNode(o, n)
	}
	return w, nil
}

// plugNode connects a node with both switches. The node always has the same MAC addresses, as a real machine does.
func (w *wires) plugNode(o Options, n int) {
	ns := w.nodes[n-1]
	must.OK(ns.Plug(UnderlayInterface, hardwareAddr(1, n), w.sw, underlayPort(NodeName(n)), underlayBridge))
	if o.Bridged { // the uplink of a bridge is no veth
		must.OK(ns.AddBridge(podBridge))
		must.OK(ns.AddChild(UnderlayInterface, &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_PASSTHRU}, ns, bridgeUplink))
		must.OK(ns.Replug(bridgeUplink, podBridge))
		must.OK(ns.SetUp(bridgeUplink, true))
	}
	if o.SingleNIC {
		w.addressUnderlay(o, n)
		return
	}
	w.plugManagement(o, ns, NodeName(n), controlPlaneHost+n)
	if w.router != nil {
		must.OK(ns.Forward())
		routeByRouter(o, ns)
		routeToPods(o, ns, n)
	}
	// The default route leads to the underlay, so plugins without a configured parent choose it. It has no gateway.
	must.OK(ns.AddDefaultRoute(UnderlayInterface))
}

// unplugNode removes the node's interfaces and their macvlans, in any namespace.
func (w *wires) unplugNode(n int) error {
	return errors.Join(w.sw.DeleteLink(underlayPort(NodeName(n))), w.sw.DeleteLink(managementPort(NodeName(n))), w.nodes[n-1].DeleteLink(podBridge))
}

// hardwareAddr returns the address of a host on one of the networks.
func hardwareAddr(network, host int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0xf1, 0, 0, byte(network), byte(host)} // 02: locally administered
}

// plugMachine lets this machine reach the management network.
func (w *wires) plugMachine(o Options) {
	here := must.Value(network.Current())
	defer here.Close()
	addrs, err := here.Links().AddrList(nil, netlink.FAMILY_V4)
	must.Done(err, "list the addresses of this machine")
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		must.That(!ok || !o.Management.Contains(ip.Unmap()), "reach the management network %s: %s of this machine has %s; choose another -management, or end the cluster that uses it", o.Management, a.Label, ip)
	}
	must.OK(here.Plug(o.managementLink(), nil, w.sw, managementPort("machine"), managementBridge))
	must.OK(here.AddAddr(o.managementLink(), netip.PrefixFrom(o.address(machineHost), o.management()[0].Bits())))
}

// plugManagement gives the namespace an address on the management network.
func (w *wires) plugManagement(o Options, ns *network.Namespace, owner string, host int) {
	must.OK(ns.Plug(managementIface, hardwareAddr(0, host), w.sw, managementPort(owner), managementBridge))
	for _, a := range hostIn(o.management(), host) {
		must.OK(ns.AddAddr(managementIface, a))
	}
}

// openWires finds the namespaces of a running cluster.
func openWires(o Options) *wires {
	w := &wires{sw: must.Value(network.Open(o.switchName())), controlPlane: must.Value(network.Open(o.controlPlaneName()))}
	if len(o.Gateways) > 0 {
		w.router = must.Value(network.Open(o.routerName()))
		w.outside = must.Value(network.Open(o.outsideName()))
	}
	for n := 1; n <= o.Nodes; n++ {
		w.nodes = append(w.nodes, must.Value(network.Open(o.nodeName(n))))
	}
	return w
}

// cutWires removes all namespaces of the cluster that exist. The kernel removes the links with them.
func cutWires(o Options) (err error) {
	defer must.Catch(&err)
	names := must.Value(network.Names(o.Prefix + "-"))
	here := must.Value(network.Current())
	defer here.Close()
	errs := []error{here.DeleteLink(o.managementLink())}
	for _, name := range names {
		errs = append(errs, network.Remove(name))
	}
	return errors.Join(errs...)
}

// filterTable is the table of the switch's namespace whose rules break the underlay.
const filterTable = "bridge underlay"

// SplitOff stops all frames to and from a node on the underlay, also between it and foreign hosts. The node keeps
// its carrier, and the capture still sees all frames that it sends. JoinUnderlay undoes it.
func (c *Cluster) SplitOff(ctx context.Context, n *Node) error {
	port := underlayPort(n.Name())
	return c.filter(ctx, fmt.Sprintf("iifname %q drop", port), fmt.Sprintf("oifname %q drop", port))
}

// JoinUnderlay undoes SplitOff and LoseFrames.
func (c *Cluster) JoinUnderlay(ctx context.Context) error { return c.filter(ctx) }

// LoseFrames drops a percentage of the frames on the underlay cables of nodes, in both directions.
// JoinUnderlay undoes it.
func (c *Cluster) LoseFrames(ctx context.Context, percent map[*Node]int) error {
	var rules []string
	for n, p := range percent {
		for _, direction := range []string{"iifname", "oifname"} {
			rules = append(rules, fmt.Sprintf("%s %q numgen random mod 100 < %d drop", direction, underlayPort(n.Name()), p))
		}
	}
	return c.filter(ctx, rules...)
}

// filter replaces the rules for frames that the switches forward; each rule names ports of the underlay.
func (c *Cluster) filter(ctx context.Context, rules ...string) error {
	var script strings.Builder
	// The first line makes the table if it is missing, so that it can be deleted.
	fmt.Fprintf(&script, "table %s\ndelete table %s\n", filterTable, filterTable)
	if len(rules) > 0 {
		fmt.Fprintf(&script, "table %s {\nchain forward {\ntype filter hook forward priority 0\n", filterTable)
		for _, rule := range rules {
			script.WriteString(rule + "\n")
		}
		script.WriteString("}\n}\n")
	}
	cmd := c.wires.sw.Command(ctx, "nft", "--file", "-")
	cmd.Stdin = strings.NewReader(script.String())
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("filter the underlay by %q: %w: %s", rules, err, output)
	}
	return nil
}

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
