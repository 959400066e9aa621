// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
)

// netns is a named network namespace of one test.
type netns struct {
	t    testing.TB
	path string
}

func newNetNS(t testing.TB, name string) *netns {
	t.Helper()
	const dir = "/run/netns"
	must(t, os.MkdirAll(dir, 0o755))
	ns := &netns{t: t, path: filepath.Join(dir, fmt.Sprintf("flt-%d-%s", os.Getpid(), name))}
	f, err := os.OpenFile(ns.path, os.O_CREATE|os.O_EXCL, 0o400)
	must(t, err)
	must(t, f.Close())
	t.Cleanup(ns.remove)
	must(t, onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", ns.path, "", unix.MS_BIND, "")
	}))
	ns.do(func() error {
		// Neighbour discovery of the kernel's own would only be in the way.
		for _, scope := range []string{"all", "default"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+scope+"/disable_ipv6", []byte("1"), 0); err != nil {
				return err
			}
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return ns
}

// remove works twice.
func (ns *netns) remove() {
	err := unix.Unmount(ns.path, unix.MNT_DETACH)
	if err == nil || errors.Is(err, unix.EINVAL) {
		err = os.Remove(ns.path)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		ns.t.Errorf("remove %s: %v", ns.path, err)
	}
}

// do runs fn in the namespace.
func (ns *netns) do(fn func() error) {
	ns.t.Helper()
	must(ns.t, attach.InNetNS(ns.path, fn))
}

// onThread runs fn on a thread of its own that ends with it.
func onThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}

// link returns a device of the namespace.
func (ns *netns) link(name string) netlink.Link {
	ns.t.Helper()
	var l netlink.Link
	ns.do(func() (err error) {
		l, err = netlink.LinkByName(name)
		return err
	})
	return l
}

func (ns *netns) index(name string) int            { return ns.link(name).Attrs().Index }
func (ns *netns) mac(name string) net.HardwareAddr { return ns.link(name).Attrs().HardwareAddr }
func (ns *netns) addAddr(name string, a netip.Addr) {
	ns.t.Helper()
	ns.do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}})
	})
}

func (ns *netns) deleteLink(name string) {
	ns.t.Helper()
	ns.do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
}

// wire is a switch: a bridge in a namespace, to which machines are plugged.
type wire struct {
	t  testing.TB
	ns *netns
}

const bridge = "br0"

func newWire(t testing.TB) *wire {
	t.Helper()
	w := &wire{t: t, ns: newNetNS(t, "wire")}
	w.ns.do(func() error {
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
		if err := netlink.LinkAdd(br); err != nil {
			return err
		}
		return netlink.LinkSetUp(br)
	})
	return w
}

// plug makes a namespace with the device p0 on the wire.
func (w *wire) plug(name string) *netns {
	w.t.Helper()
	ns := newNetNS(w.t, name)
	f, err := os.Open(ns.path)
	must(w.t, err)
	defer f.Close()
	w.ns.do(func() error {
		port := "port-" + name
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: port},
			PeerName:  "p0", PeerNamespace: netlink.NsFd(int(f.Fd())),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add veth: %w", err)
		}
		br, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		l, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(l, br); err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
	ns.up("p0")
	return ns
}

func (ns *netns) up(name string) {
	ns.t.Helper()
	ns.do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
}

// pod makes a namespace with a macvlan eth0 on parent, as the reference plugin does: the link is there and down.
func (ns *netns) pod(parent, name string) *netns {
	ns.t.Helper()
	pod := newNetNS(ns.t, name)
	f, err := os.Open(pod.path)
	must(ns.t, err)
	defer f.Close()
	ns.do(func() error {
		l, err := netlink.LinkByName(parent)
		if err != nil {
			return err
		}
		attrs := netlink.LinkAttrs{Name: "eth0", ParentIndex: l.Attrs().Index, Namespace: netlink.NsFd(int(f.Fd()))}
		return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE})
	})
	return pod
}
