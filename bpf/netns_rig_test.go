// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
	lan "github.com/fenceline/fenceline/test/network"
)

// netns is a machine or a pod.
type netns struct {
	*lan.Namespace
	t    testing.TB
	path string
}

func newNetNS(t testing.TB, name string) *netns {
	t.Helper()
	made := lan.New(t, name)
	ns := &netns{made, t, made.Path()}
	ns.do(func() error {
		// Neighbour discovery of the kernel's own would only be in the way.
		for _, scope := range []string{"all", "default"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+scope+"/disable_ipv6", []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	return ns
}

// remove ends the namespace, unless a process is in it.
func (ns *netns) remove() {
	ns.t.Helper()
	check.OK(ns.t, ns.Delete())
}

// do runs fn in the namespace that has the name now.
func (ns *netns) do(fn func() error) {
	ns.t.Helper()
	check.OK(ns.t, attach.InNetNS(ns.path, fn))
}

func (ns *netns) index(name string) int {
	ns.t.Helper()
	return check.Value(ns.Index(name))(ns.t)
}

func (ns *netns) mac(name string) net.HardwareAddr {
	ns.t.Helper()
	return check.Value(ns.MAC(name))(ns.t)
}

func (ns *netns) addAddr(name string, a netip.Addr) {
	ns.t.Helper()
	check.OK(ns.t, ns.AddAddr(name, netip.PrefixFrom(a, 24)))
}

func (ns *netns) up(name string) {
	ns.t.Helper()
	check.OK(ns.t, ns.SetUp(name, true))
}

func (ns *netns) deleteLink(name string) {
	ns.t.Helper()
	check.OK(ns.t, ns.DeleteLink(name))
}

func (ns *netns) device(name string) netlink.Link {
	ns.t.Helper()
	return check.Value(ns.Links().LinkByName(name))(ns.t)
}

func (ns *netns) setMAC(name string, mac net.HardwareAddr) {
	ns.t.Helper()
	check.OK(ns.t, ns.Links().LinkSetHardwareAddr(ns.device(name), mac))
}

func (ns *netns) move(name string, to *netns) {
	ns.t.Helper()
	f := check.Value(os.Open(to.path))(ns.t)
	defer f.Close()
	check.OK(ns.t, ns.Links().LinkSetNsFd(ns.device(name), int(f.Fd())))
}

// pod makes a namespace with a macvlan eth0 on parent, as the reference plugin does: the link is there and down.
func (ns *netns) pod(parent, name string) *netns {
	ns.t.Helper()
	pod := newNetNS(ns.t, name)
	check.OK(ns.t, ns.AddMacvlan(parent, nil, pod.Namespace, "eth0"))
	return pod
}

// wire is a switch, to which machines are plugged.
type wire struct {
	t  testing.TB
	ns *netns
}

func newWire(t testing.TB) *wire {
	t.Helper()
	w := &wire{t: t, ns: newNetNS(t, "wire")}
	check.OK(t, w.ns.AddBridge(lan.Bridge))
	check.OK(t, w.ns.EndRecord()) // these tests send malformed frames
	return w
}

// plug makes a namespace with the device p0 on the wire.
func (w *wire) plug(name string) *netns {
	w.t.Helper()
	ns := newNetNS(w.t, name)
	lan.LAN{Switch: w.ns.Namespace}.Plug(w.t, ns.Namespace, "p0", nil, name)
	return ns
}

func (w *wire) unplug(name string) {
	w.t.Helper()
	check.OK(w.t, w.ns.DeleteLink(lan.Port(name)))
}
