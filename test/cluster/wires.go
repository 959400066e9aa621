// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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

// plugNode connects a node with both switches. The node always has the same MAC addresses, as a real
// machine does.
func (w *wires) plugNode(o Options, n int) {
	ns := w.nodes[n-1]
	must.OK(ns.Plug(UnderlayInterface, hardwareAddr(1, n), w.sw, underlayPort(NodeName(n)), underlayBridge))
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
	// The default route leads to the underlay, so plugins without a configured parent choose it. It
	// has no gateway.
	must.OK(ns.AddDefaultRoute(UnderlayInterface))
}

// unplugNode removes the node's interfaces and their macvlans, in any namespace.
func (w *wires) unplugNode(n int) error {
	return errors.Join(
		w.sw.DeleteLink(underlayPort(NodeName(n))),
		w.sw.DeleteLink(managementPort(NodeName(n))),
	)
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

// SplitOff stops all frames to and from a node on the underlay, also between it and foreign hosts.
// The node keeps its carrier, and the capture still sees all frames that it sends. JoinUnderlay
// undoes it.
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

// filter replaces the rules for frames that the switches forward; each rule names
// ports of the underlay.
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
