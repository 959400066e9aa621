// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestDevicesAreThoseThatSendByTheParent(t *testing.T) {
	attrs := func(index, lower int) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Index, a.ParentIndex, a.NetNsID = index, lower, -1
		a.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}
		return a
	}
	elsewhere := attrs(9, 2) // its lower device is number 2 of another namespace
	elsewhere.NetNsID = 3
	short := attrs(10, 2)
	short.HardwareAddr = nil
	links := []netlink.Link{
		&netlink.Macvlan{LinkAttrs: attrs(5, 4)}, // on a VLAN of the parent
		&netlink.Device{LinkAttrs: attrs(2, 0)},
		&netlink.Macvlan{LinkAttrs: attrs(3, 2)},
		&netlink.Vlan{LinkAttrs: attrs(4, 2)},
		&netlink.Device{LinkAttrs: attrs(6, 0)},
		&netlink.Macvlan{LinkAttrs: attrs(7, 6)},
		&netlink.Veth{LinkAttrs: attrs(8, 2)}, // its peer is number 2 somewhere
		&netlink.Macvlan{LinkAttrs: elsewhere},
		&netlink.Macvlan{LinkAttrs: short},
	}
	var got []int
	for _, mac := range devices(links, 2) {
		got = append(got, int(mac[5]))
	}
	check.Same(t, got, []int{2, 3, 4, 5}, "devices")
}

// lo finds lo, of which loopback is an alternative name.
func lo(name string) (index int, exists bool, err error) {
	return 1, name == "lo" || name == "loopback", nil
}

// The addresses of Services are on a device that is down, if kube-proxy uses IPVS.
func TestAddressesAreThoseFromWhichTheNodeSends(t *testing.T) {
	device := func(index int, flags net.Flags) netlink.Link {
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index, Flags: flags}}
	}
	on := func(index int, prefix string) netlink.Addr {
		p := netip.MustParsePrefix(prefix)
		return netlink.Addr{LinkIndex: index, IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	}
	got := addresses([]netlink.Link{device(1, net.FlagUp), device(2, net.FlagUp), device(3, 0)}, []netlink.Addr{
		on(2, "fd09::7/64"), on(2, "fe80::1/64"), on(2, "10.9.0.7/24"), on(1, "127.0.0.1/8"), on(1, "192.0.2.1/32"), on(2, "10.9.0.7/32"), on(3, "10.96.0.1/32"),
	})
	check.Same(t, fmt.Sprint(got), "[10.9.0.7 192.0.2.1 fd09::7]", "addresses")
}

// The keeper tells the kernel each setting of a parent once. After a failure, it tries again.
func TestKernelIsToldOfChanges(t *testing.T) {
	var calls []string
	var failure error
	parents := map[int]string{1: "lo", 2000000: "eth9"}
	k := NewExclusive(ExclusiveOptions{
		Names: []string{"loopback"}, Index: lo, Parents: func() map[int]string { return parents }, Log: testr.New(t), Clock: clocktesting.NewFakeClock(time.Unix(0, 0)),
		SetAddresses: func([]netip.Addr) error { return nil },
		SetTrusted: func(parent int, macs []net.HardwareAddr, exclusive bool) error {
			calls = append(calls, fmt.Sprintf("%d %t %d", parent, exclusive, len(macs)))
			return failure
		},
	})
	passes := func(want ...string) {
		t.Helper()
		calls = nil
		check.Is(t, k.pass(), failure, "pass:")
		check.Same(t, calls, want, "calls")
	}
	failure = errors.New("map full")
	passes("1 true 0")
	failure = nil
	passes("1 true 0", "2000000 false 0")
	passes()
	k.Names = nil
	passes("1 false 0")
	parents = nil
	passes()
	parents = map[int]string{1: "lo"}
	passes("1 false 0")
}
