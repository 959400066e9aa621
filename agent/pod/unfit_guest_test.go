// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package pod

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

func TestGuestUnfitInterfacesAreNamed(t *testing.T) {
	node, inside := network.New(t, "node"), network.New(t, "pod")
	bond := func(name string, mode netlink.BondMode) int {
		b := netlink.NewLinkBond(attrs(name, 0))
		b.Mode = mode
		return addLink(t, node, b)
	}
	alb := bond("alb", netlink.BOND_MODE_BALANCE_ALB)
	bond("backup", netlink.BOND_MODE_ACTIVE_BACKUP)
	addLink(t, node, &netlink.Vlan{LinkAttrs: attrs("alb.5", alb), VlanId: 5})
	for _, row := range []struct {
		parent string
		link   netlink.Link
		want   error
	}{
		{"backup", &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE}, nil},
		{"alb", &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE}, ErrRewrites},
		{"alb.5", &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE}, ErrRewrites},
		{"backup", &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2}, nil},
		{"backup", &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L3}, ErrLayer3},
		{"backup", &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L3S}, ErrLayer3},
	} {
		check.OK(t, node.AddChild(row.parent, row.link, inside, "net1"))
		err := withFinder(node, func(f *Finder) error { return f.Unfit(inside.Path(), "net1") })
		check.Is(t, err, row.want, "%+v on %s: got", row.link, row.parent)
		check.OK(t, inside.DeleteLink("net1"))
	}
}
