// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
)

func TestWhatFencelineCannotServeIsNamed(t *testing.T) {
	bond := func(mode netlink.BondMode) netlink.Link {
		b := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
		b.Mode = mode
		return b
	}
	for name, row := range map[string]struct {
		link netlink.Link
		want error
		says string
	}{
		"macvlan":             {&netlink.Macvlan{}, nil, ""},
		"ipvlan l2":           {&netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2}, nil, ""},
		"ipvlan l3":           {&netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L3}, ErrLayer3, "mode l3"},
		"ipvlan l3s":          {&netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L3S}, ErrLayer3, "mode l3s"},
		"bond active-backup":  {bond(netlink.BOND_MODE_ACTIVE_BACKUP), nil, ""},
		"bond 802.3ad":        {bond(netlink.BOND_MODE_802_3AD), nil, ""},
		"bond balance-alb":    {bond(netlink.BOND_MODE_BALANCE_ALB), ErrRewrites, "bond bond0"},
		"a VLAN subinterface": {&netlink.Vlan{VlanId: 5}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := errors.Join(layer3(row.link), rewrites(row.link))
			check.Must(t, errors.Is(err, row.want), "got %v, want %v", err, row.want)
			if err != nil && !strings.HasSuffix(err.Error(), row.says) && !strings.Contains(err.Error(), row.says+" ") {
				t.Errorf("%q does not say %q", err, row.says)
			}
		})
	}
}
