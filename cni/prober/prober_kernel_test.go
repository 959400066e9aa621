// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package prober

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// pod returns a namespace whose interface eth0 is plugged into a switch.
func pod(t *testing.T) *network.Namespace {
	t.Helper()
	return network.NewLAN(t).Host(t, "pod", "eth0")
}

func TestTheKernelAnswersFromTheEndOfTheProbeUntilDropOrClose(t *testing.T) {
	one, other := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")
	for _, up := range []bool{false, true} {
		t.Run(fmt.Sprintf("the interface was up: %v", up), func(t *testing.T) {
			ns := pod(t)
			check.OK(t, ns.SetUp("eth0", up))
			addrs := []netip.Addr{one, other}
			p := check.Value(Open(t.Context(), ns.Path(), "eth0", addrs, Params{Rounds: 3, Interval: 10 * time.Millisecond}))(t)
			check.None(t, check.Value(p.Probe(t.Context(), addrs))(t), "used")
			want(t, ns, true, one, other)
			check.OK(t, p.Drop(one))
			want(t, ns, true, other)
			check.OK(t, p.Close())
			want(t, ns, up)
		})
	}
}

// want checks the interface, and the addresses for which the kernel answers on it.
func want(t *testing.T, ns *network.Namespace, up bool, addrs ...netip.Addr) {
	t.Helper()
	link := check.Value(ns.Links().LinkByName("eth0"))(t)
	check.Equal(t, link.Attrs().RawFlags&unix.IFF_UP != 0, up, "the interface is up:")
	filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}
	routes := check.Value(ns.Links().RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE))(t)
	got := map[netip.Addr]bool{}
	for _, r := range routes {
		addr, _ := netip.AddrFromSlice(r.Dst.IP)
		got[addr.Unmap()] = true
	}
	for _, addr := range addrs {
		check.That(t, got[addr], "the kernel does not answer for %s", addr)
	}
	check.That(t, len(got) == len(addrs), "the kernel answers for %v, want %v", got, addrs)
}

// The sockets end soon after Close, without the process that closes them.
func TestTheEndLeavesNoSocket(t *testing.T) {
	ns := pod(t)
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}
	before := descriptors(t)
	p := check.Value(Open(t.Context(), ns.Path(), "eth0", addrs, Params{Rounds: 3, Interval: 10 * time.Millisecond}))(t)
	check.Equal(t, packetSockets(t, ns), 1, "packet sockets in the namespace:")
	check.OK(t, p.Close())
	after := descriptors(t)
	check.That(t, after <= before, "%d file descriptors more", after-before)
	check.Becomes(t, time.Minute, "the end of the packet socket", func() bool { return packetSockets(t, ns) == 0 })
}

func TestARingThatCannotHoldTheFileIsClosed(t *testing.T) {
	before := descriptors(t)
	ring, err := ringOf(1 << 20)
	check.That(t, err != nil, "io_uring %d holds no file", ring)
	after := descriptors(t)
	check.That(t, after <= before, "%d file descriptors more", after-before)
}

func descriptors(t *testing.T) int {
	t.Helper()
	return len(check.Value(os.ReadDir("/proc/self/fd"))(t))
}

// packetSockets counts those of a namespace.
func packetSockets(t *testing.T, ns *network.Namespace) (n int) {
	t.Helper()
	err := ns.Do(func() error {
		table, err := os.ReadFile("/proc/thread-self/net/packet")
		n = bytes.Count(table, []byte("\n")) - 1 // without the heading
		return err
	})
	check.OK(t, err)
	return n
}
