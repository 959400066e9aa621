// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"maps"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/fenceline/fenceline/test/check"
)

func TestABridgeHasOneUplink(t *testing.T) {
	const bridge, uplink, end = 1, 2, 5
	filtering := true
	br, filters := &netlink.Bridge{LinkAttrs: linkOn("br0", bridge, 0)}, &netlink.Bridge{LinkAttrs: linkOn("br0", bridge, 0), VlanFiltering: &filtering}
	port := &netlink.Veth{LinkAttrs: linkOn("veth5", end, bridge)}
	card := &netlink.Device{LinkAttrs: linkOn("eth1", uplink, bridge)}
	vlan := func(name string, id, lower int) netlink.Link {
		v := &netlink.Vlan{LinkAttrs: linkOn(name, 9, 0), VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
		v.ParentIndex = lower
		return v
	}
	const untagged, native, refused = nl.BRIDGE_VLAN_INFO_UNTAGGED, nl.BRIDGE_VLAN_INFO_UNTAGGED | nl.BRIDGE_VLAN_INFO_PVID, " the node does not hear the VLAN of the interface: bridge br0 filters VLANs, and "
	in := func(vid, flags uint16) *nl.BridgeVlanInfo { return &nl.BridgeVlanInfo{Vid: vid, Flags: flags} }
	blue := vlans{end: {in(100, native)}, uplink: {in(1, native), in(100, 0)}, bridge: {in(1, native), in(100, 0)}}
	with := func(index int32, own ...*nl.BridgeVlanInfo) vlans {
		all := maps.Clone(blue)
		all[index] = own
		return all
	}
	missing := refused + "the node has no interface in VLAN 100 of it: run ip link add link br0 name br0.100 up type vlan id 100; bridge vlan add dev br0 vid 100 self"
	native100 := refused + "VLAN 100 has no tag on br0 itself, so no interface can hear it there: put the node's own address on br0.100, and make the VLAN tagged on br0, or use another VLAN"
	for name, row := range map[string]struct {
		links []netlink.Link
		vlans vlans
		want  string
	}{
		"a card": {[]netlink.Link{br, port, card, &netlink.Device{LinkAttrs: linkOn("eth2", 3, 0)}}, nil, "eth1 <nil>"},
		"a VLAN, beside a tap of a virtual machine": {
			[]netlink.Link{br, &netlink.Vlan{LinkAttrs: linkOn("bond0.7", uplink, bridge)}, &netlink.Tuntap{LinkAttrs: linkOn("tap0", 4, bridge)}}, nil,
			"bond0.7 <nil>",
		},
		"none": {
			[]netlink.Link{br, port}, nil,
			" interface has no uplink: bridge br0 has no port to the network; make the interface of the underlay its port",
		},
		"two": {
			[]netlink.Link{br, card, &netlink.Device{LinkAttrs: linkOn("eth2", 3, bridge)}}, nil,
			" interface has no uplink: bridge br0 has several ports to the network, eth1, eth2; use a bond of them",
		},
		"a bond": {
			[]netlink.Link{&netlink.Bond{LinkAttrs: linkOn("bond0", bridge, 0)}, port}, nil,
			" interface has no uplink: bond0 is of kind bond, not a bridge",
		},
		"a bridge that is gone": {[]netlink.Link{port}, nil, " interface has no uplink: the bridge, ifindex 1, is gone"},

		"a VLAN with a tag outside":          {[]netlink.Link{filters, card, vlan("blue", 100, bridge)}, blue, "blue <nil>"},
		"the VLAN without a tag outside":     {[]netlink.Link{filters, card}, with(end, in(1, native)), "eth1 <nil>"},
		"a VLAN that only goes out untagged": {[]netlink.Link{filters, card, vlan("blue", 100, bridge)}, with(uplink, in(1, native), in(100, untagged)), refused + "VLAN 100 has a tag on its port eth1 in one direction alone: make it both the PVID and untagged there, or neither"},
		"a VLAN that only comes in untagged": {[]netlink.Link{filters, card, vlan("blue", 100, bridge)}, with(uplink, in(1, untagged), in(100, nl.BRIDGE_VLAN_INFO_PVID)), refused + "VLAN 100 has a tag on its port eth1 in one direction alone: make it both the PVID and untagged there, or neither"},
		"the plugin's default":               {[]netlink.Link{filters, card, vlan("blue", 100, bridge)}, with(end, in(1, untagged), in(100, native)), refused + "veth5 is in several VLANs: set preserveDefaultVlan to false in the network configuration, and no vlanTrunk"},
		"a trunk of one VLAN":                {[]netlink.Link{filters, card, vlan("blue", 100, bridge)}, with(end, in(100, 0)), refused + "veth5 has no VLAN for untagged frames: set vlan in the network configuration"},
		"no VLAN":                            {[]netlink.Link{filters, card}, with(end), refused + "veth5 has no VLAN for untagged frames: set vlan in the network configuration"},
		"a VLAN that stays inside":           {[]netlink.Link{filters, card, vlan("blue", 100, bridge)}, with(uplink, in(1, native)), refused + "VLAN 100 does not reach its port eth1: run bridge vlan add dev eth1 vid 100"},
		"the uplink takes it":                {[]netlink.Link{filters, card, vlan("eth1.100", 100, uplink)}, blue, refused + "eth1.100 takes VLAN 100 from it: remove this interface"},
		"no interface of the VLAN":           {[]netlink.Link{filters, card, vlan("green", 200, bridge)}, blue, missing},
		"the bridge is not in the VLAN":      {[]netlink.Link{filters, card, vlan("blue", 100, bridge)}, with(bridge, in(1, native)), missing},
		"the bridge is in it without a tag":  {[]netlink.Link{filters, card, vlan("blue", 100, bridge)}, with(bridge, in(100, native)), native100},
		"and has no interface of it":         {[]netlink.Link{filters, card}, with(bridge, in(100, untagged)), native100},
	} {
		parent, err := parentOf(row.links, port, func() (map[int32][]*nl.BridgeVlanInfo, error) { return row.vlans, nil }, nil)
		check.Equal(t, fmt.Sprintf("%s %v", parent.Name, err), row.want, "%s:", name)
	}
}

func linkOn(name string, index, master int) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Index, a.Name, a.MasterIndex = index, name, master
	return a
}
