// SPDX-License-Identifier: Apache-2.0

// Package namespaces is the fast rig: nodes, an underlay switch and foreign hosts
// as network namespaces, and a runtime of the reference plugins, libcni, on each
// node. There is no Kubernetes, and set-up takes milliseconds.
//
//	         sw: br0
//	┌──────────┼──────────┐
//	ul0 of n1  ul0 of n2   eth0 of foreign hosts
//	 ├ macvlan  └ macvlan
//	 pods       pods
package namespaces

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

const (
	// Parent is the node's interface on the underlay, the master of macvlans.
	Parent = "ul0"
	// HostInterface is a foreign host's interface on the underlay.
	HostInterface = "eth0"
	// PodInterface is the interface that CNI makes in a pod.
	PodInterface = "eth0"

	// elsewhere is a switch that is not connected with the first.
	elsewhere = "br-else"
)

// Rig is a network of nodes. The end of its test removes it.
type Rig struct {
	t       testing.TB
	plugins []string
	cache   string // of libcni
	lan     network.LAN
	nodes   []*Node
	made    atomic.Int32 // hosts, for their names
}

// Node is a machine of the rig.
type Node struct {
	*network.Namespace
	rig  *Rig
	name string
}

// New builds a rig with nodes n1, n2 and so on. It needs root, and fails the test without.
func New(t testing.TB, nodes int) *Rig {
	t.Helper()
	check.Must(t, os.Geteuid() == 0, "the namespace rig needs root")
	plugins := programs.Dir()
	if _, err := os.Stat(filepath.Join(plugins, "macvlan")); plugins == "" || err != nil { // this is no guest
		plugins = check.Value(check.Value(thirdparty.NewBuilder(os.Stderr))(t).Dir(t.Context(), thirdparty.CNIPlugins))(t)
	}
	lan := network.NewLAN(t)
	var hosts []*network.Namespace
	for n := 1; n <= nodes; n++ {
		hosts = append(hosts, lan.Host(t, NodeName(n), Parent))
	}
	return On(t, plugins, lan, hosts...)
}

// On makes a rig of hosts that are plugged into a LAN, as nodes n1, n2 and so on. Each has its Parent, whose
// port has the role NodeName. Plugins is the directory of the reference plugins.
func On(t testing.TB, plugins string, lan network.LAN, hosts ...*network.Namespace) *Rig {
	t.Helper()
	r := &Rig{t: t, plugins: []string{plugins}, cache: t.TempDir(), lan: lan}
	for i, host := range hosts {
		r.nodes = append(r.nodes, &Node{Namespace: host, rig: r, name: NodeName(i + 1)})
	}
	return r
}

// NodeName returns the name of a node by its number.
func NodeName(n int) string { return "n" + strconv.Itoa(n) }

// Node returns the node with that number; the first is 1.
func (r *Rig) Node(n int) *Node { return r.nodes[n-1] }

// Count returns the number of nodes.
func (r *Rig) Count() int { return len(r.nodes) }

// UsePlugins adds a directory in which plugins are looked for, before that of the reference plugins.
func (r *Rig) UsePlugins(dir string) { r.plugins = append([]string{dir}, r.plugins...) }

// CNI runs fn on a thread in the node's network namespace with a runtime whose plugins run there, too.
func (n *Node) CNI(fn func(*libcni.CNIConfig) error) error {
	return n.Do(func() error { return fn(libcni.NewCNIConfigWithCacheDir(n.rig.plugins, n.rig.cache, nil)) })
}

// CutUnderlay pulls the node's cable out of the switch.
func (n *Node) CutUnderlay() error { return n.rig.lan.Switch.SetUp(network.Port(n.name), false) }

// HealUnderlay plugs it in again.
func (n *Node) HealUnderlay() error { return n.rig.lan.Switch.SetUp(network.Port(n.name), true) }

// RemakeParent removes the node's parent, and makes it again under the same name: a bond is restarted.
func (n *Node) RemakeParent() error {
	if err := n.DeleteLink(Parent); err != nil {
		return err
	}
	return n.Plug(Parent, nil, n.rig.lan.Switch, network.Port(n.name), network.Bridge)
}

// MoveElsewhere plugs the node's cable into a switch of its own. Its parent keeps its name.
func (n *Node) MoveElsewhere() error {
	if err := n.rig.lan.Switch.AddBridge(elsewhere); err != nil {
		return err
	}
	return n.rig.lan.Switch.Replug(network.Port(n.name), elsewhere)
}

// Isolate stops all frames between nodes, or undoes that. Each node keeps its carrier and reaches the
// hosts. A capture still sees all frames.
func (r *Rig) Isolate(isolated bool) error {
	var errs []error
	for _, n := range r.nodes {
		errs = append(errs, r.lan.Switch.SetIsolated(network.Port(n.name), isolated))
	}
	return errors.Join(errs...)
}

// Host is a machine on the underlay without Fenceline.
type Host struct {
	*network.Namespace
	Addr netip.Addr
	MAC  net.HardwareAddr
	port string
	rig  *Rig
}

// Host plugs in a foreign host, which answers for its address. With a nil mac, the kernel chooses one.
func (r *Rig) Host(addr netip.Prefix, mac net.HardwareAddr) *Host {
	r.t.Helper()
	name := "h" + strconv.Itoa(int(r.made.Add(1)))
	h := &Host{Namespace: network.New(r.t, name), Addr: addr.Addr(), port: network.Port(name), rig: r}
	r.lan.Plug(r.t, h.Namespace, HostInterface, mac, name, addr)
	h.MAC = check.Value(h.Namespace.MAC(HostInterface))(r.t)
	return h
}

// Unplug removes the host from the switch.
func (h *Host) Unplug() error { return h.rig.lan.Switch.DeleteLink(h.port) }

// Capture records what enters the switch, until Stop or the end of the test.
func (r *Rig) Capture() *capture.Capture {
	r.t.Helper()
	c := check.Value(capture.Start(r.lan.Switch, network.Bridge))(r.t)
	r.t.Cleanup(func() { check.Value(c.Stop())(r.t) })
	return c
}
