package cluster

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/test/network"
)

// wires are the namespaces of a cluster and what connects them.
type wires struct {
	sw, controlPlane *network.Namespace
	nodes            []*network.Namespace // nodes[0] is n1
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
	if w.controlPlane, err = w.plugManaged(o, o.controlPlaneName(), "cp", o.address(controlPlaneHost)); err != nil {
		return nil, err
	}
	for n := 1; n <= o.Nodes; n++ {
		ns, err := w.plugManaged(o, o.nodeName(n), NodeName(n), o.nodeAddress(n))
		if err != nil {
			return nil, err
		}
		// kubelet wants a default route; nothing is forwarded there.
		if err := ns.AddDefaultRoute(o.address(machineHost)); err != nil {
			return nil, err
		}
		if err := ns.Plug(UnderlayInterface, nil, w.sw, underlayPort(NodeName(n)), underlayBridge); err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, ns)
	}
	return w, nil
}

// plugMachine lets this machine reach the management network.
func (w *wires) plugMachine(o Options) error {
	here, err := network.Current()
	if err != nil {
		return err
	}
	defer here.Close()
	if err := here.Plug(o.managementLink(), nil, w.sw, managementPort("machine"), managementBridge); err != nil {
		return err
	}
	return here.AddAddr(o.managementLink(), netip.PrefixFrom(o.address(machineHost), o.Management.Bits()))
}

// plugManaged makes a namespace with an address on the management network.
func (w *wires) plugManaged(o Options, name, owner string, addr netip.Addr) (*network.Namespace, error) {
	ns, err := network.Create(name)
	if err != nil {
		return nil, err
	}
	if err := ns.Plug(managementIface, nil, w.sw, managementPort(owner), managementBridge); err != nil {
		return nil, err
	}
	return ns, ns.AddAddr(managementIface, netip.PrefixFrom(addr, o.Management.Bits()))
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
	for n := 1; n <= o.Nodes; n++ {
		ns, err := network.Open(o.nodeName(n))
		if err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, ns)
	}
	return w, nil
}

// cutWires removes every namespace of the cluster, whatever of it exists. Links
// go with their namespaces, and this machine's link with its peer.
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
