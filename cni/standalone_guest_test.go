// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package main

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// What follows needs modules that not every machine has: ipvlan and 8021q.

const onIPVLAN = `"type":"ipvlan","master":"p0","mode":"l2"`

func TestGuestAForeignHostIsPassedOverOnIPVLAN(t *testing.T) {
	l := newLAN(t)
	foreign := l.plug(t, "foreign", "192.0.2.10/24", "2001:db8::10/64")
	h := l.host(t, "host")
	list, one := h.list(t, onIPVLAN, pluginType, dual), network.New(t, "one")
	first := container("one", one)
	check.List(t, h.mustAdd(t, list, first), []string{"192.0.2.11/24", "2001:db8::11/64"}, "the first container got")
	two := network.New(t, "two")
	check.List(t, h.mustAdd(t, list, container("two", two)), []string{"192.0.2.12/24", "2001:db8::12/64"}, "the second container got")
	reach(t, foreign, one, "192.0.2.11", "2001:db8::11")
	reach(t, foreign, two, "192.0.2.12", "2001:db8::12")
	reach(t, one, two, "192.0.2.12", "2001:db8::12")
	h.mustDel(t, list, first)
	check.List(t, h.held(t), []string{"192.0.2.12", "2001:db8::12"}, "after DEL data files of")
}

func TestGuestTheAddressIsAnsweredForBeforeItIsConfiguredOnIPVLAN(t *testing.T) {
	answeredBeforeConfigured(t, onIPVLAN, &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2})
}

func TestGuestTwoMachinesWithTheSameRangeHaveNoDuplicateOnIPVLAN(t *testing.T) {
	addManyToTwoHosts(t, newLAN(t), onIPVLAN)
}

// With "linkInContainer" the index of the parent counts in the container, and is that of another interface
// on the machine.
func TestGuestTheParentOfAnIPVLANMayBeInTheContainer(t *testing.T) {
	l := newLAN(t)
	l.plug(t, "foreign", "192.0.2.10/24")
	h, one := newLAN(t).host(t, "host"), l.plug(t, "one", "192.0.2.11/24")
	check.OK(t, one.AddChild("p0", &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2}, one, "eth0"))
	check.OK(t, h.net.Do(func() error {
		out, err := callPlugin(t, h.bin, pluginType, referenceCall{verb: "ADD", netns: one.Path()}, loneConf(h.data, small))
		check.That(t, err == nil, "%v: %s", err, out)
		return nil
	}))
	check.List(t, h.held(t), []string{"192.0.2.12"}, "data files of")
}

// An ipvlan gets the frames to its addresses, so its master would lose an address that both have.
func TestGuestNoContainerGetsAnAddressOfItsMaster(t *testing.T) {
	for _, mode := range []string{"l2", "l3"} {
		t.Run(mode, func(t *testing.T) {
			h := newLAN(t).host(t, "host")
			check.OK(t, h.net.AddAddr("p0", netip.MustParsePrefix("192.0.2.10/24")))
			list := h.list(t, `"type":"ipvlan","master":"p0","mode":"`+mode+`"`, pluginType, small)
			check.List(t, h.mustAdd(t, list, container("one", network.New(t, "one"))), []string{"192.0.2.11/24"}, "got")
		})
	}
}

// A bond of mode 802.3ad without a partner passes frames on.
func TestGuestAForeignHostIsPassedOverOnABond(t *testing.T) {
	l := newLAN(t)
	l.plug(t, "foreign", "192.0.2.10/24")
	h := l.host(t, "host")
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
	bond.Mode, bond.Miimon = netlink.BOND_MODE_802_3AD, 10
	check.OK(t, h.net.Links().LinkAdd(bond))
	check.OK(t, h.net.SetUp("p0", false)) // a bond takes no interface that is up
	check.OK(t, h.net.Replug("p0", "bond0"))
	check.OK(t, h.net.SetUp("bond0", true))
	check.OK(t, h.net.AddAddr("bond0", netip.MustParsePrefix("192.0.2.11/24")))
	got := h.mustAdd(t, h.list(t, `"type":"macvlan","master":"bond0","mode":"bridge"`, pluginType, small), container("one", network.New(t, "one")))
	check.List(t, got, []string{"192.0.2.12/24"}, "got")
}

func TestGuestADummyIsNotProbed(t *testing.T) { givesWithoutProbe(t, "dummy") }

// All containers of a master have its MAC, so a sibling is told by its address only.
func TestGuestASiblingOnTheSameMasterIsMet(t *testing.T) { siblingIsMet(t, onIPVLAN) }

// The foreign host is met only in its own VLAN.
func TestGuestAForeignHostIsPassedOverInItsVLAN(t *testing.T) {
	l := newLAN(t)
	foreign := l.host(t, "foreign")
	const inVLAN5, inVLAN6 = `"type":"vlan","master":"p0","vlanId":5`, `"type":"vlan","master":"p0","vlanId":6`
	theirs := network.New(t, "theirs")
	// A container of another machine, with files of its own.
	foreign.mustAdd(t, foreign.list(t, inVLAN5, hostLocal, dual), container("foreign", theirs))
	h := l.host(t, "host")
	one := network.New(t, "one")
	got := h.mustAdd(t, h.list(t, inVLAN5, pluginType, dual), container("one", one))
	check.List(t, got, []string{"192.0.2.11/24", "2001:db8::11/64"}, "in the VLAN of the foreign host the container got")
	reach(t, theirs, one, "192.0.2.11", "2001:db8::11")
	other := *h
	other.data = t.TempDir()
	got = other.mustAdd(t, other.list(t, inVLAN6, pluginType, dual), container("two", network.New(t, "two")))
	check.List(t, got, []string{"192.0.2.10/24", "2001:db8::10/64"}, "in another VLAN the container got")
}

// reach connects from one namespace to addresses of another.
func reach(t *testing.T, from, to *network.Namespace, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		var listener net.Listener
		check.OK(t, to.Do(func() (err error) { listener, err = net.Listen("tcp", net.JoinHostPort(addr, "0")); return err }))
		conn, err := from.Connect(netip.Addr{}, "tcp", netip.MustParseAddrPort(listener.Addr().String()), time.Minute)
		check.Must(t, err == nil, "reach %s: %v", addr, err)
		check.OK(t, errors.Join(conn.Close(), listener.Close()))
	}
}
