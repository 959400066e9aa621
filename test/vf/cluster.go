// SPDX-License-Identifier: Apache-2.0

// Package vf is the rig of SR-IOV. It works in a guest of test/guest with -sriov. Two hosts have a
// network card (PF) each, which is cabled to a switch, and virtual functions (VFs) of it. All of
// test/namespaces and test/nodes works on these hosts too.
//
//	        sw: br0
//	┌─────────┴─────────┐
//	ul0 of n1          ul0 of n2    the PFs
//	 ├ vf0, vf1 …       ├ vf0, vf1 …
//	 pods               pods
//
// A host is a network namespace, but the kernel does not know that it is a machine: new VFs, and VFs
// of an ended namespace of a pod, appear in the namespace of the test process. Collect moves them.
package vf

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/programs"
)

// Cluster is an API server and two nodes with cards.
type Cluster struct {
	*nodes.Cluster
	LAN LAN
}

// New starts agents on the hosts of a LAN. test/programs shares the programs and reference plugins.
// The API server is that of the guest, so only one Cluster may exist at a time.
func New(t testing.TB, vfs int) *Cluster {
	t.Helper()
	c := &Cluster{LAN: NewLAN(t, vfs)}
	rig := namespaces.On(t, programs.Dir(), c.LAN.LAN, c.LAN.Hosts[0].Namespace, c.LAN.Hosts[1].Namespace)
	c.Cluster = nodes.On(t, rig)
	return c
}

// Form is the form in which a plugin gets its VF and Fenceline.
type Form string

// Forms.
const (
	// Delegated: the plugin's own configuration names the VF, and Fenceline is its IPAM.
	Delegated Form = "IPAM"
	// Chained: as Delegated, and Fenceline is also chained behind the plugin.
	Chained Form = "IPAM and chained"
	// Multus: as Multus 4 calls the plugin for a network with a resourceName. The fields deviceID and
	// pciBusID and the runtime configuration name the VF.
	Multus Form = "as Multus delegates"
	// DRA: as dra-driver-sriov calls the plugin in its mode STANDALONE, by libcni's AddNetwork. The
	// driver has written the VF into the network attachment. There is no list, and no capability.
	DRA Form = "as the DRA driver calls"
)

// Plugins that move a VF. Each uses the newest version of the CNI specification that it knows.
const (
	HostDevice = "host-device"
	SRIOV      = "sriov"
)

// NewSandbox makes an empty sandbox for a pod on a node, numbered from 1. Its ADD moves the VF.
func (c *Cluster) NewSandbox(number int, pod *corev1.Pod, v VF, plugin string, form Form) (*nodes.Sandbox, error) {
	n := c.Nodes[number-1]
	version, device := "1.0.0", fmt.Sprintf(`"pciBusID":%q`, v.PCI)
	if plugin == SRIOV {
		version, device = "0.3.1", fmt.Sprintf(`"deviceID":%q`, v.PCI)
	}
	var behind string
	var capabilities map[string]any
	switch form {
	case Chained:
		behind = "," + n.Chained()
	case Multus:
		device = fmt.Sprintf(`"deviceID":%q,"pciBusID":%[1]q,"capabilities":{"deviceID":true}`, v.PCI)
		capabilities = map[string]any{"deviceID": v.PCI}
	case DRA:
		alone := fmt.Appendf(nil, `{"cniVersion":%q,"name":"vf","type":%q,"deviceID":%q,"runtimeConfig":{"deviceID":%[3]q},"ipam":%[4]s}`, version, plugin, v.PCI, n.IPAM())
		return n.NewSandboxOf(pod, alone, nil)
	}
	list := fmt.Appendf(nil, `{"cniVersion":%q,"name":"vf","plugins":[{"type":%q,%s,"ipam":%s}%s]}`, version, plugin, device, n.IPAM(), behind)
	return n.NewSandboxOf(pod, list, capabilities)
}

// dialLimit is for one try of Reach.
const dialLimit = 2 * time.Second

// Reach connects by TCP to an address of another namespace, which listens meanwhile.
func Reach(from, to *network.Namespace, addr netip.Addr) (err error) {
	defer must.CatchIn(&err, "reach %s in %s from %s", addr, to.Name, from.Name)
	var listener net.Listener
	must.OK(to.Do(func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(addr.String(), "0"))
		return err
	}))
	defer listener.Close()
	return must.Value(from.Connect(netip.Addr{}, "tcp", netip.MustParseAddrPort(listener.Addr().String()), dialLimit)).Close()
}
