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
	alb, backup := bond("alb", netlink.BOND_MODE_BALANCE_ALB), bond("backup", netlink.BOND_MODE_ACTIVE_BACKUP)
	onALB := addLink(t, node, &netlink.Vlan{LinkAttrs: attrs("alb.5", alb), VlanId: 5})
	macvlan := func(parent int) netlink.Link {
		return &netlink.Macvlan{LinkAttrs: attrs("net1", parent), Mode: netlink.MACVLAN_MODE_BRIDGE}
	}
	ipvlan := func(mode netlink.IPVlanMode) netlink.Link {
		return &netlink.IPVlan{LinkAttrs: attrs("net1", backup), Mode: mode}
	}
	for _, row := range []struct {
		name string
		link netlink.Link
		want error
	}{
		{"macvlan on active-backup", macvlan(backup), nil},
		{"macvlan on balance-alb", macvlan(alb), ErrRewrites},
		{"macvlan on a VLAN of balance-alb", macvlan(onALB), ErrRewrites},
		{"ipvlan l2", ipvlan(netlink.IPVLAN_MODE_L2), nil},
		{"ipvlan l3", ipvlan(netlink.IPVLAN_MODE_L3), ErrLayer3},
		{"ipvlan l3s", ipvlan(netlink.IPVLAN_MODE_L3S), ErrLayer3},
	} {
		child(t, node, inside, row.link)
		var err error
		check.OK(t, node.Do(func() error {
			f, failed := NewFinder()
			if failed != nil {
				return failed
			}
			err = f.Unfit(inside.Path(), "net1")
			return f.Close()
		}))
		check.Is(t, err, row.want, "%s: got", row.name)
		check.OK(t, inside.DeleteLink("net1"))
	}
}
