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
	w := &wires{}
	if w.sw, err = network.Create(o.switchName()); err != nil {
		return nil, err
	}
	for _, bridge := range []string{managementBridge, underlayBridge} {
		if err := w.sw.AddBridge(bridge); err != nil {
			return nil, err
		}
	}
	if o.Snooping {
		if err := w.sw.Snoop(underlayBridge); err != nil {
			return nil, err
		}
	}
	if err := w.plugMachine(o); err != nil {
		return nil, err
	}
	if w.controlPlane, err = network.Create(o.controlPlaneName()); err != nil {
		return nil, err
	}
	if err := w.plugManagement(o, w.controlPlane, "cp", controlPlaneHost); err != nil {
		return nil, err
	}
	if len(o.Gateways) > 0 {
		if err := w.addRouter(o); err != nil {
			return nil, err
		}
	}
	for n := 1; n <= o.Nodes; n++ {
		ns, err := network.Create(o.nodeName(n))
		if err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, ns)
		if err := w.plugNode(o, n); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// plugNode connects a node with both switches. The node always has the same MAC addresses, as a real
// machine does.
func (w *wires) plugNode(o Options, n int) error {
	ns := w.nodes[n-1]
	if err := ns.Plug(UnderlayInterface, hardwareAddr(1, n), w.sw, underlayPort(NodeName(n)), underlayBridge); err != nil {
		return err
	}
	if o.SingleNIC {
		return w.addressUnderlay(o, n)
	}
	if err := w.plugManagement(o, ns, NodeName(n), controlPlaneHost+n); err != nil {
		return err
	}
	if w.router != nil {
		if err := errors.Join(ns.Forward(), routeByRouter(o, ns), routeToPods(o, ns, n)); err != nil {
			return err
		}
	}
	// The default route leads to the underlay, so plugins without a configured parent choose it. It
	// has no gateway.
	return ns.AddDefaultRoute(UnderlayInterface)
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
func (w *wires) plugMachine(o Options) error {
	here, err := network.Current()
	if err != nil {
		return err
	}
	defer here.Close()
	addrs, err := here.Links().AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list the addresses of this machine: %w", err)
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && o.Management.Contains(ip.Unmap()) {
			return fmt.Errorf("reach the management network %s: %s of this machine has %s; choose another -management, or end the cluster that uses it", o.Management, a.Label, ip)
		}
	}
	if err := here.Plug(o.managementLink(), nil, w.sw, managementPort("machine"), managementBridge); err != nil {
		return err
	}
	return here.AddAddr(o.managementLink(), netip.PrefixFrom(o.address(machineHost), o.management()[0].Bits()))
}

// plugManagement gives the namespace an address on the management network.
func (w *wires) plugManagement(o Options, ns *network.Namespace, owner string, host int) error {
	if err := ns.Plug(managementIface, hardwareAddr(0, host), w.sw, managementPort(owner), managementBridge); err != nil {
		return err
	}
	for _, a := range hostIn(o.management(), host) {
		if err := ns.AddAddr(managementIface, a); err != nil {
			return err
		}
	}
	return nil
}

// openWires finds the namespaces of a running cluster.
func openWires(o Options) (*wires, error) {
	w := &wires{}
	var err error
	if w.sw, err = network.Open(o.switchName()); err != nil {
		return nil, err
	}
	if w.controlPlane, err = network.Open(o.controlPlaneName()); err != nil {
		return nil, err
	}
	if len(o.Gateways) > 0 {
		if w.router, err = network.Open(o.routerName()); err != nil {
			return nil, err
		}
		if w.outside, err = network.Open(o.outsideName()); err != nil {
			return nil, err
		}
	}
	for n := 1; n <= o.Nodes; n++ {
		ns, err := network.Open(o.nodeName(n))
		if err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, ns)
	}
	return w, nil
}

// cutWires removes all namespaces of the cluster that exist. The kernel removes the links with them.
func cutWires(o Options) error {
	names, err := network.Names(o.Prefix + "-")
	if err != nil {
		return err
	}
	here, err := network.Current()
	if err != nil {
		return err
	}
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
