// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/internal/wholelist"
	"github.com/fenceline/fenceline/test/check"
)

func TestAPortOfOpenVSwitchHasTheParentOfItsVLAN(t *testing.T) {
	const system, own, uplink, end = 1, 2, 3, 5
	ovsLink := func(name string, index int) netlink.Link {
		return &netlink.GenericLink{LinkAttrs: linkOn(name, index, 0), LinkType: wholelist.OVSKind}
	}
	port := &netlink.Veth{LinkAttrs: linkOn("veth5", end, system)}
	vlan := func(name string, id, lower int) netlink.Link {
		v := &netlink.Vlan{LinkAttrs: linkOn(name, 9, 0), VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
		v.ParentIndex = lower
		return v
	}
	links := []netlink.Link{ovsLink("ovs-system", system), ovsLink("br0", own), port,
		&netlink.Device{LinkAttrs: linkOn("eth1", uplink, system)}, &netlink.Device{LinkAttrs: linkOn("eth2", 4, system)}, vlan("blue", 100, own)}
	of := func(name, kind string) wholelist.OVSPort {
		return wholelist.OVSPort{Name: name, Interfaces: []wholelist.OVSInterface{{Name: name, Type: kind}}}
	}
	access := func(p wholelist.OVSPort, tag int) wholelist.OVSPort { p.Tag = []int{tag}; return p }
	mode := func(p wholelist.OVSPort, mode string, trunks ...int) wholelist.OVSPort {
		p.Mode, p.Trunks = []string{mode}, trunks
		return p
	}
	veth, inside, card := of("veth5", ""), of("br0", "internal"), of("eth1", "system")
	blue := access(veth, 100)
	const noVLAN, unfit = " the node does not hear the VLAN of the interface: on bridge br0 of Open vSwitch, ", " this bridge of Open vSwitch is not served: "
	for name, row := range map[string]struct {
		ports  []wholelist.OVSPort
		change func(*wholelist.OVSBridge)
		more   []netlink.Link
		want   string
	}{
		"no tag":                               {[]wholelist.OVSPort{veth, inside, card}, nil, nil, "eth1 <nil>"},
		"VLAN 0":                               {[]wholelist.OVSPort{mode(access(veth, 0), "access"), inside, card}, nil, nil, "eth1 <nil>"},
		"a trunk with untagged frames":         {[]wholelist.OVSPort{mode(veth, "trunk", 0, 100), inside, card}, nil, nil, "eth1 <nil>"},
		"a trunk without":                      {[]wholelist.OVSPort{mode(veth, "trunk", 100), inside, card}, nil, nil, noVLAN + "veth5 has no VLAN for untagged frames: set vlan in the network configuration, or add the ID 0 to its trunk"},
		"a tag outside":                        {[]wholelist.OVSPort{blue, inside, card}, nil, nil, "blue <nil>"},
		"a native VLAN of the port":            {[]wholelist.OVSPort{mode(blue, "native-untagged", 7), inside, card}, nil, nil, "blue <nil>"},
		"a native VLAN with tags":              {[]wholelist.OVSPort{mode(blue, "native-tagged"), inside, card}, nil, nil, noVLAN + "veth5 has no VLAN for untagged frames: set vlan in the network configuration, or add the ID 0 to its trunk"},
		"a tunnel of tags":                     {[]wholelist.OVSPort{mode(blue, "dot1q-tunnel"), inside, card}, nil, nil, noVLAN + "veth5 has no VLAN for untagged frames: set vlan in the network configuration, or add the ID 0 to its trunk"},
		"an uplink in the VLAN":                {[]wholelist.OVSPort{blue, inside, access(card, 100)}, nil, nil, "eth1 <nil>"},
		"an uplink with it as its native VLAN": {[]wholelist.OVSPort{blue, inside, mode(access(card, 100), "native-untagged")}, nil, nil, "eth1 <nil>"},
		"an uplink with a tag on it as well":   {[]wholelist.OVSPort{blue, inside, mode(access(card, 100), "native-tagged", 7)}, nil, nil, "blue <nil>"},
		"an uplink in another VLAN":            {[]wholelist.OVSPort{blue, inside, access(card, 7)}, nil, nil, noVLAN + "VLAN 100 does not reach its port eth1: run ovs-vsctl clear port eth1 tag trunks vlan_mode"},
		"an uplink that lacks it":              {[]wholelist.OVSPort{blue, inside, mode(card, "trunk", 7)}, nil, nil, noVLAN + "VLAN 100 does not reach its port eth1: run ovs-vsctl clear port eth1 tag trunks vlan_mode"},
		"an uplink with another native VLAN":   {[]wholelist.OVSPort{veth, inside, mode(access(card, 7), "native-untagged")}, nil, nil, noVLAN + "VLAN 0 does not reach its port eth1: run ovs-vsctl clear port eth1 tag trunks vlan_mode"},
		"a bridge in it without a tag":         {[]wholelist.OVSPort{blue, access(inside, 100), card}, nil, nil, noVLAN + "VLAN 100 has no tag on br0 itself, so no interface can hear it there: run ovs-vsctl clear port br0 tag trunks vlan_mode, after the node's own address is on another interface"},
		"no interface of the VLAN":             {[]wholelist.OVSPort{access(veth, 200), inside, card}, nil, nil, noVLAN + "the node has no interface in VLAN 200 of it: run ip link set br0 up; ip link add link br0 name br0.200 up type vlan id 200"},
		"the uplink takes it":                  {[]wholelist.OVSPort{blue, inside, card}, nil, []netlink.Link{vlan("eth1.100", 100, uplink)}, noVLAN + "eth1.100 takes VLAN 100 from it: remove this interface"},
		"no uplink":                            {[]wholelist.OVSPort{veth, inside}, nil, nil, " interface has no uplink: bridge br0 has no port to the network; make the interface of the underlay its port"},
		"two uplinks":                          {[]wholelist.OVSPort{veth, inside, card, of("eth2", "")}, nil, nil, " interface has no uplink: bridge br0 has several ports to the network, eth1, eth2; use a bond of them"},
		"a bond of Open vSwitch": {[]wholelist.OVSPort{veth, inside, {Name: "bond", Interfaces: []wholelist.OVSInterface{{Name: "eth1"}, {Name: "eth2"}}}}, nil, nil,
			" interface has no uplink: bridge br0 has several ports to the network, eth1, eth2; use a bond of them"},
		"a way to another bridge": {[]wholelist.OVSPort{veth, inside, card, of("to-br1", "patch")}, nil, nil, unfit + "port to-br1 of bridge br0 is of type patch, behind which no probe looks; make a bridge without it"},
		"a card of DPDK":          {[]wholelist.OVSPort{veth, inside, of("dpdk0", "dpdk")}, nil, nil, unfit + "port dpdk0 of bridge br0 is of type dpdk, behind which no probe looks; make a bridge without it"},
		"user space": {[]wholelist.OVSPort{veth, inside, card}, func(b *wholelist.OVSBridge) { b.Datapath = "netdev" }, nil,
			unfit + "bridge br0 switches in user space, past all guards; set its datapath_type to system"},
		"no flows": {[]wholelist.OVSPort{veth, inside, card}, func(b *wholelist.OVSBridge) { b.FailMode = []string{"secure"} }, nil,
			unfit + "bridge br0 forwards by the flows of a controller, not as a switch; make a bridge without controller and fail mode"},
		"a port of no bridge": {[]wholelist.OVSPort{inside, card}, nil, nil, " interface has no uplink: its other end is no port of Open vSwitch"},
	} {
		bridge := wholelist.OVSBridge{Name: "br0", Ports: row.ports}
		if row.change != nil {
			row.change(&bridge)
		}
		parent, err := parentOf(slices.Concat(links, row.more), port, nil, func() ([]wholelist.OVSBridge, error) { return []wholelist.OVSBridge{bridge}, nil })
		check.Equal(t, fmt.Sprintf("%s %v", parent.Name, err), row.want, "%s:", name)
	}

	silent := func() ([]wholelist.OVSBridge, error) { return nil, fmt.Errorf("%w: %w", ErrNoOVS, fs.ErrNotExist) }
	_, err := parentOf(links, port, nil, silent)
	check.That(t, errors.Is(err, ErrNoOVS), "without its database: %v", err)
	coming := &netlink.Veth{LinkAttrs: linkOn("veth5", end, 0)}
	_, err = parentOf(links, coming, nil, silent)
	check.That(t, errors.Is(err, ErrNoUplink), "a veth without a bridge: %v", err)
	parent, err := parentOf(links, coming, nil, func() ([]wholelist.OVSBridge, error) {
		return []wholelist.OVSBridge{{Name: "br0", Ports: []wholelist.OVSPort{veth, inside, card}}}, nil
	})
	check.Equal(t, fmt.Sprint(parent.Name, err), "eth1<nil>", "a port that Open vSwitch has not taken yet:")

	withoutTCX := func() ([]wholelist.OVSBridge, error) {
		return []wholelist.OVSBridge{{Name: "br0", Ports: []wholelist.OVSPort{veth, inside, card}}}, ErrUnfitOVS
	}
	for _, p := range []*netlink.Veth{port, coming} {
		_, err = parentOf(links, p, nil, withoutTCX)
		check.That(t, errors.Is(err, ErrUnfitOVS), "a port without tcx: %v", err)
	}
	_, err = parentOf(links, &netlink.Veth{LinkAttrs: linkOn("veth6", 6, 0)}, nil, withoutTCX)
	check.That(t, errors.Is(err, ErrNoUplink), "a veth that is no port, without tcx: %v", err)
}
