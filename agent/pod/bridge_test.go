// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
)

func TestABridgeHasOneUplink(t *testing.T) {
	attrs := func(index int, name string, master int) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Index, a.Name, a.MasterIndex = index, name, master
		return a
	}
	const bridge = 1
	filtering := true
	br := &netlink.Bridge{LinkAttrs: attrs(bridge, "br0", 0)}
	port := &netlink.Veth{LinkAttrs: attrs(5, "veth5", bridge)}
	for name, row := range map[string]struct {
		links []netlink.Link
		want  string
	}{
		"a card": {
			[]netlink.Link{br, port, &netlink.Device{LinkAttrs: attrs(2, "eth1", bridge)}, &netlink.Device{LinkAttrs: attrs(3, "eth2", 0)}},
			"eth1 <nil>",
		},
		"a VLAN, beside a tap of a virtual machine": {
			[]netlink.Link{br, &netlink.Vlan{LinkAttrs: attrs(2, "bond0.7", bridge)}, &netlink.Tuntap{LinkAttrs: attrs(4, "tap0", bridge)}},
			"bond0.7 <nil>",
		},
		"none": {
			[]netlink.Link{br, port},
			" interface has no uplink: bridge br0 has no port to the network; make the interface of the underlay its port",
		},
		"two": {
			[]netlink.Link{br, &netlink.Device{LinkAttrs: attrs(2, "eth1", bridge)}, &netlink.Device{LinkAttrs: attrs(3, "eth2", bridge)}},
			" interface has no uplink: bridge br0 has several ports to the network, eth1, eth2; use a bond of them",
		},
		"VLAN filtering": {
			[]netlink.Link{&netlink.Bridge{LinkAttrs: attrs(bridge, "br0", 0), VlanFiltering: &filtering}, &netlink.Device{LinkAttrs: attrs(2, "eth1", bridge)}},
			" interface has no uplink: bridge br0 filters VLANs, so its ports are in several segments; make a bridge for each VLAN, with a VLAN interface as its uplink",
		},
		"Open vSwitch": {
			[]netlink.Link{&netlink.GenericLink{LinkAttrs: attrs(bridge, "ovs-system", 0), LinkType: "openvswitch"}, port},
			" interface has no uplink: ovs-system is of kind openvswitch, not a Linux bridge",
		},
		"a bridge that is gone": {[]netlink.Link{port}, " interface has no uplink: the bridge, ifindex 1, is gone"},
	} {
		uplink, err := uplinkOf(row.links, bridge)
		check.Equal(t, fmt.Sprintf("%s %v", uplink.Name, err), row.want, "%s:", name)
	}
}
