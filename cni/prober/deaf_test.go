// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
)

func TestABondIsDeafUntilALinkIsInItsAggregation(t *testing.T) {
	const activeAggregatesInSync, andCollects, andDistributes = 0x0d, 0x1d, 0x3d
	for _, row := range []struct {
		name   string
		mode   netlink.BondMode
		states []uint8
		want   bool
	}{
		{"the switch says nothing", netlink.BOND_MODE_802_3AD, []uint8{0x4d, activeAggregatesInSync}, true},
		{"the switch does not send yet", netlink.BOND_MODE_802_3AD, []uint8{andCollects}, true},
		{"one of two links is in", netlink.BOND_MODE_802_3AD, []uint8{activeAggregatesInSync, andDistributes}, false},
		{"a mode without LACP", netlink.BOND_MODE_ACTIVE_BACKUP, []uint8{0}, false},
	} {
		bond := &netlink.Bond{LinkAttrs: netlink.LinkAttrs{Index: 5}, Mode: row.mode}
		// A link of another bond does not count.
		links := []netlink.Link{&netlink.Device{LinkAttrs: netlink.LinkAttrs{MasterIndex: 6, Slave: &netlink.BondSlave{AdActorOperPortState: andDistributes}}}}
		for _, state := range row.states {
			links = append(links, &netlink.Device{LinkAttrs: netlink.LinkAttrs{MasterIndex: 5, Slave: &netlink.BondSlave{AdActorOperPortState: state}}})
		}
		check.Equal(t, negotiates(bond, links), row.want, "%s:", row.name)
	}
}
