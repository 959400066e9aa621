// SPDX-License-Identifier: Apache-2.0

// Package namespaces is the fast rig: nodes, an underlay switch and foreign hosts
// as network namespaces, and pods made by the reference macvlan plugin through
// libcni. There is no Kubernetes, and set-up takes milliseconds.
//
//	         sw: br-ul
//	┌──────────┼──────────┐
//	ul0 of n1  ul0 of n2   eth0 of foreign hosts
//	 ├ macvlan  └ macvlan
//	 pods       pods
package namespaces

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/thirdparty"
)

const (
	// Parent is the node's interface on the underlay, the master of macvlans.
	Parent = "ul0"
	// HostInterface is a foreign host's interface on the underlay.
	HostInterface = "eth0"

	bridge = "br-ul"
	// elsewhere is a switch that is not connected with the first.
	elsewhere = "br-else"
)

// Rig is a network of nodes. The end of its test removes it.
type Rig struct {
	t       testing.TB
	prefix  string
	plugins []string
	cache   string // of libcni
	sw      *network.Namespace
	nodes   []*Node
	made    atomic.Int32 // pods and hosts, for their names
}

// Node is a machine of the rig.
type Node struct {
	*network.Namespace
	rig  *Rig
	name string
}

// New builds a rig with nodes n1, n2 and so on. It needs root, and fails the
// test without.
func New(t testing.TB, nodes int) *Rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the namespace rig needs root")
	}
	builder, err := thirdparty.NewBuilder(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	plugins, err := builder.Dir(context.Background(), thirdparty.CNIPlugins)
	if err != nil {
		t.Fatal(err)
	}
	r := &Rig{t: t, plugins: []string{plugins}, cache: t.TempDir()}
	r.begin()
	if err := r.sw.AddBridge(bridge); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= nodes; n++ {
		name := "n" + strconv.Itoa(n)
		node := &Node{Namespace: r.namespace(name), rig: r, name: name}
		r.plug(node.Namespace, Parent, name, nil)
		r.nodes = append(r.nodes, node)
	}
	return r
}

// begin makes the namespace of the switch, which takes the prefix for the names
// of all others: a test process may use several rigs, one after the other or at once.
func (r *Rig) begin() {
	r.t.Helper()
	for i := 0; r.sw == nil; i++ {
		r.prefix = fmt.Sprintf("flt-%d-%d-", os.Getpid(), i)
		taken, err := network.Names(r.prefix)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(taken) > 0 {
			continue
		}
		if r.sw, err = network.Create(r.prefix + "sw"); err != nil && !errors.Is(err, fs.ErrExist) {
			r.t.Fatal(err)
		}
	}
	r.endWithTest(r.sw)
}

// namespace makes a namespace that ends with the test.
func (r *Rig) namespace(name string) *network.Namespace {
	r.t.Helper()
	ns, err := network.Create(r.prefix + name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.endWithTest(ns)
	return ns
}

func (r *Rig) endWithTest(ns *network.Namespace) {
	r.t.Cleanup(func() {
		if err := ns.Delete(); err != nil {
			r.t.Error(err)
		}
	})
}

func (r *Rig) plug(ns *network.Namespace, iface, owner string, mac net.HardwareAddr) {
	r.t.Helper()
	if err := ns.Plug(iface, mac, r.sw, port(owner), bridge); err != nil {
		r.t.Fatal(err)
	}
}

// port names the switch's port of a node or host, as it appears in a capture.
func port(owner string) string { return "ul-" + owner }

// Node returns the node with that number; the first is 1.
func (r *Rig) Node(n int) *Node { return r.nodes[n-1] }

// CutUnderlay pulls the node's cable out of the switch.
func (n *Node) CutUnderlay() error { return n.rig.sw.SetUp(port(n.name), false) }

// HealUnderlay plugs it in again.
func (n *Node) HealUnderlay() error { return n.rig.sw.SetUp(port(n.name), true) }

// MoveElsewhere plugs the node's cable into a switch of its own. Its parent keeps its name.
func (n *Node) MoveElsewhere() error {
	if err := n.rig.sw.AddBridge(elsewhere); err != nil {
		return err
	}
	return n.rig.sw.Replug(port(n.name), elsewhere)
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
	h := &Host{Namespace: r.namespace(name), Addr: addr.Addr(), port: port(name), rig: r}
	r.plug(h.Namespace, HostInterface, name, mac)
	if err := h.AddAddr(HostInterface, addr); err != nil {
		r.t.Fatal(err)
	}
	var err error
	if h.MAC, err = h.Namespace.MAC(HostInterface); err != nil {
		r.t.Fatal(err)
	}
	return h
}

// Unplug removes the host from the switch.
func (h *Host) Unplug() error { return h.rig.sw.DeleteLink(h.port) }

// Capture records what enters the switch, until Stop or the end of the test.
func (r *Rig) Capture() *capture.Capture {
	r.t.Helper()
	c, err := capture.Start(r.sw, bridge)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if _, err := c.Stop(); err != nil {
			r.t.Error(err)
		}
	})
	return c
}
