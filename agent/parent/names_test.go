// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"testing"

	"github.com/vishvananda/netlink"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestWhichParentsCarryAPool(t *testing.T) {
	link := func(name string, index, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, MasterIndex: master, NetNsID: -1, AltNames: []string{"alt-" + name}}
	}
	vlan := func(name string, index, below, id int) netlink.Link {
		attrs := link(name, index, 0)
		attrs.ParentIndex = below
		return &netlink.Vlan{LinkAttrs: attrs, VlanId: id}
	}
	all := []netlink.Link{
		&netlink.Device{LinkAttrs: link("eth0", 2, 0)}, vlan("eth0.5", 3, 2, 5), vlan("blue", 4, 2, 6),
		&netlink.Bond{LinkAttrs: link("bond0", 5, 0)}, &netlink.Device{LinkAttrs: link("pf0", 6, 5)},
		&netlink.Device{LinkAttrs: link("pf1", 7, 5)}, vlan("bond0.5", 8, 5, 5),
		&netlink.Bridge{LinkAttrs: link("br0", 9, 0)}, &netlink.Device{LinkAttrs: link("port", 10, 9)},
	}
	n := node{list: func() ([]netlink.Link, error) { return all, nil }}
	n.byIndex = func(index int) (netlink.Link, error) { return all[index-2], nil }
	for _, row := range []struct {
		rule    string
		parents []string
		vlan    int64
		parent  int
		want    bool
	}{
		{"its name", []string{"none", "eth0"}, 0, 2, true},
		{"its alternative name", []string{"alt-eth0"}, 0, 2, true},
		{"another interface", []string{"bond0"}, 0, 2, false},
		{"a pool that names none", nil, 7, 2, true},
		{"a VLAN subinterface by its name", []string{"eth0.5"}, 0, 3, true},
		{"by its name and its VLAN", []string{"eth0.5"}, 5, 3, true},
		{"by the interface below it and its VLAN", []string{"alt-eth0"}, 6, 4, true},
		{"another VLAN of the interface", []string{"eth0"}, 5, 4, false},
		{"a pool of the interface without a VLAN", []string{"eth0"}, 0, 3, false},
		{"a pool of a VLAN, and the bare interface", []string{"eth0"}, 5, 2, false},
		{"a VF of a port, by its bond", []string{"bond0"}, 0, 6, true},
		{"a VF of a port, by another port", []string{"pf1"}, 0, 6, false},
		{"a bond by one of its ports", []string{"alt-pf1"}, 0, 5, true},
		{"a VLAN of a bond by one of its ports", []string{"pf0"}, 5, 8, true},
		{"a port of a bridge by the bridge", []string{"br0"}, 0, 10, false},
	} {
		t.Run(row.rule, func(t *testing.T) {
			p := check.Value(n.describe(row.parent))(t)
			spec := &v1alpha1.IPPoolSpec{Parents: row.parents, Vlan: ptr.To(row.vlan)}
			check.Equal(t, p.Carries(spec), row.want, "parent %+v carries it:", p)
		})
	}
}
