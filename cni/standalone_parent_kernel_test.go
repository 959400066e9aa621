// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

const onBridge, onMACVLANOfBridge = `"type":"bridge","bridge":"br0"`, `"type":"macvlan","master":"br0","mode":"bridge"`

// hostOnBridge is a host whose p0 is a port of its bridge br0.
func (l *lan) hostOnBridge(t *testing.T, role string) *loneHost {
	t.Helper()
	h := l.host(t, role)
	check.OK(t, h.net.AddBridge("br0"))
	check.OK(t, h.net.SetUp("br0", true))
	check.OK(t, h.net.Replug("p0", "br0"))
	return h
}

// No frame of a macvlan reaches the stack of its parent, so no probe finds the addresses of the parent.
func TestNoContainerGetsAnAddressThatItsParentHas(t *testing.T) {
	for _, row := range []struct{ name, plugin, has, want, want6 string }{
		{"the parent of a macvlan", onMACVLAN, "p0", "192.0.2.11/24", "2001:db8::11/64"},
		{"of a private one", `"type":"macvlan","master":"p0","mode":"private"`, "p0", "192.0.2.11/24", "2001:db8::11/64"},
		{"a bridge as parent", onMACVLANOfBridge, "br0", "192.0.2.11/24", "2001:db8::11/64"},
		{"the bridge of the containers", onBridge, "br0", "192.0.2.11/24", "2001:db8::11/64"},
		{"another macvlan of the machine", onMACVLAN, "shim", "192.0.2.11/24", "2001:db8::11/64"},
		{"an interface of another segment", onMACVLAN, "other", "192.0.2.10/24", "2001:db8::10/64"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t)
			h := l.host(t, "host")
			if row.has == "br0" {
				h = l.hostOnBridge(t, "bridged")
			}
			if row.has == "other" {
				check.OK(t, h.net.AddBridge("other"))
			}
			if row.has == "shim" {
				check.OK(t, h.net.AddMacvlan("p0", nil, h.net, "shim"))
			}
			check.OK(t, h.net.SetUp(row.has, true))
			check.OK(t, h.net.AddAddr(row.has, netip.MustParsePrefix("192.0.2.10/24")))
			check.OK(t, h.net.AddAddr(row.has, netip.MustParsePrefix("2001:db8::10/64")))
			got := h.mustAdd(t, h.list(t, row.plugin, pluginType, dual), container("one", network.New(t, "one")))
			check.List(t, got, []string{row.want, row.want6}, "got")
		})
	}
}

func TestARequestForAnAddressOfTheParentIsRefused(t *testing.T) {
	h, one := newLAN(t).host(t, "host"), network.New(t, "one")
	check.OK(t, h.net.AddAddr("p0", netip.MustParsePrefix("192.0.2.10/24")))
	h.child(t, one, &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE})
	for _, mode := range []string{"Enforce", "Observe", "Off"} {
		check.OK(t, h.net.Do(func() error {
			call := referenceCall{verb: "ADD", args: "IP=192.0.2.10", netns: one.Path()}
			out, err := callPlugin(t, h.bin, pluginType, call, loneConf(h.data, detecting(`"mode":"`+mode+`"`)))
			wantPrinted(t, out, err, agentapi.CodeAddressRefused, "reserve 192.0.2.10: p0 of this machine has it")
			return nil
		}))
	}
	check.None(t, h.held(t), "data files of")
}

func TestARangeOfAddressesOfTheParentNamesThem(t *testing.T) {
	h, one := newLAN(t).host(t, "host"), network.New(t, "one")
	check.OK(t, h.net.AddAddr("p0", netip.MustParsePrefix("192.0.2.10/24")))
	h.child(t, one, &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE})
	check.OK(t, h.net.Do(func() error {
		conf := loneConf(h.data, `"ranges":[[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.10","rangeEnd":"192.0.2.10"}]]`)
		out, err := callPlugin(t, h.bin, pluginType, referenceCall{verb: "ADD", netns: one.Path()}, conf)
		wantPrinted(t, out, err, agentapi.CodeExhausted, "p0 of this machine has [192.0.2.10")
		return nil
	}))
}

// With "linkInContainer" the index of the parent counts in the container.
func TestTheParentMayBeInTheContainer(t *testing.T) {
	l := newLAN(t)
	h, one := l.host(t, "host"), l.plug(t, "one", "192.0.2.10/24")
	check.OK(t, one.AddMacvlan("p0", nil, one, "eth0"))
	check.OK(t, h.net.Do(func() error {
		out, err := callPlugin(t, h.bin, pluginType, referenceCall{verb: "ADD", netns: one.Path()}, loneConf(h.data, small))
		check.That(t, err == nil, "%v: %s", err, out)
		return nil
	}))
	check.List(t, h.held(t), []string{"192.0.2.11"}, "data files of")
}

// A port that listens has its carrier, and drops what other hosts say.
func TestAPortOfABridgeThatDoesNotForwardYetIsWaitedFor(t *testing.T) {
	for _, row := range []struct {
		name, plugin string
		// beside: another port forwards, so the bridge has its carrier.
		beside bool
		// delay is the forward delay in hundredths of a second. A port forwards after twice that time.
		delay int
	}{
		{"the container's own", onBridge, true, 200},
		{"one of several of a parent", onMACVLANOfBridge, true, 200},
		{"the only one of a parent, for longer than a carrier may take", onMACVLANOfBridge, false, 300},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			l := newLAN(t)
			l.plug(t, "foreign", "192.0.2.10/24", "2001:db8::10/64")
			h := l.hostOnBridge(t, "host")
			if row.beside {
				check.OK(t, network.New(t, "other").Plug("eth0", nil, h.net, "other", "br0"))
			}
			span := h.net.Command(t.Context(), "ip", "link", "set", "br0", "type", "bridge", "stp_state", "1", "forward_delay", strconv.Itoa(row.delay))
			check.OK(t, span.Run())
			if row.plugin == onMACVLANOfBridge {
				check.OK(t, h.net.SetUp("p0", false))
				check.OK(t, h.net.SetUp("p0", true))
			}
			got := h.mustAdd(t, h.list(t, row.plugin, pluginType, dual), container("one", network.New(t, "one")))
			check.List(t, got, []string{"192.0.2.11/24", "2001:db8::11/64"}, "got")
		})
	}
}
