// SPDX-License-Identifier: Apache-2.0

package exclusive

import (
	"errors"
	"fmt"
	"net"
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

// The keeper tells the kernel each setting of a parent once. After a failure, it tries again.
func TestKernelIsToldOfChanges(t *testing.T) {
	var calls []string
	var failure error
	parents := map[int]string{1: "lo", 2000000: "eth9"}
	k := New(Options{
		Names: []string{"loopback"}, Index: lo, Parents: func() map[int]string { return parents }, Log: testr.New(t), Clock: clocktesting.NewFakeClock(time.Unix(0, 0)),
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
