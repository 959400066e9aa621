// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
)

func TestAParentBehindWhichTheNodeHasOtherHostsIsShared(t *testing.T) {
	const parent, lower = 7, 3
	type attrs = netlink.LinkAttrs
	below := attrs{Index: parent, ParentIndex: lower, NetNsID: -1}
	device := func(a attrs) netlink.Link { return &netlink.Device{LinkAttrs: a} }
	vfs := []netlink.VfInfo{{ID: 0}}
	for _, row := range []struct {
		name  string
		links []netlink.Link
		want  bool
	}{
		{"an adapter", []netlink.Link{device(attrs{Index: parent})}, false},
		{"a PF with VFs", []netlink.Link{device(attrs{Index: parent, Vfs: vfs})}, true},
		{"a veth", []netlink.Link{&netlink.Veth{LinkAttrs: attrs{Index: parent}}}, false},
		{"a bridge", []netlink.Link{&netlink.Bridge{LinkAttrs: attrs{Index: parent}}}, true},
		{"a macvlan, with siblings", []netlink.Link{&netlink.Macvlan{LinkAttrs: attrs{Index: parent}}}, true},
		{"a port of Open vSwitch", []netlink.Link{&netlink.GenericLink{LinkAttrs: attrs{Index: parent}, LinkType: "openvswitch"}}, true},
		{"a VLAN of an adapter", []netlink.Link{&netlink.Vlan{LinkAttrs: below}, device(attrs{Index: lower})}, false},
		{"a VLAN of a bridge", []netlink.Link{&netlink.Vlan{LinkAttrs: below}, &netlink.Bridge{LinkAttrs: attrs{Index: lower}}}, true},
		{"a VLAN of an interface in another namespace",
			[]netlink.Link{&netlink.Vlan{LinkAttrs: attrs{Index: parent, ParentIndex: lower, NetNsID: 0}}, device(attrs{Index: lower})}, true},
		{"a bond of adapters", []netlink.Link{&netlink.Bond{LinkAttrs: attrs{Index: parent}}, device(attrs{Index: lower, MasterIndex: parent})}, false},
		{"a bond of PFs", []netlink.Link{&netlink.Bond{LinkAttrs: attrs{Index: parent}},
			device(attrs{Index: lower, MasterIndex: parent}), device(attrs{Index: 4, MasterIndex: parent, Vfs: vfs})}, true},
		{"an interface that is gone", nil, true},
	} {
		t.Run(row.name, func(t *testing.T) { check.Equal(t, shared(parent, row.links), row.want, "shared is") })
	}
}
