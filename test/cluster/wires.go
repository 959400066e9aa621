// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

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
	// The default route leads to the underlay, so plugins without a configured parent choose it. There
	// is no router by this way.
	return ns.AddDefaultRoute(UnderlayInterface)
}

// unplugNode removes the node's interfaces, and with them every macvlan on
// them, in whichever namespace it is.
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
	return here.AddAddr(o.managementLink(), netip.PrefixFrom(o.address(machineHost), o.Management.Bits()))
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
