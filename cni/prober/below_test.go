// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
)

func TestABondIsDeafUntilAnInterfaceIsInItsAggregation(t *testing.T) {
	slave := func(bond int, state netlink.BondSlaveState, port uint8) netlink.Link {
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{MasterIndex: bond, Slave: &netlink.BondSlave{State: state, AdActorOperPortState: port}}}
	}
	const active, backup, synchronized, collects, distributes = netlink.BondStateActive, netlink.BondStateBackup, 0x0d, 0x1d, 0x3d
	partner := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for _, row := range []struct {
		name    string
		mode    netlink.BondMode
		partner net.HardwareAddr
		slaves  []netlink.Link
		want    bool
	}{
		{"none is chosen yet", netlink.BOND_MODE_802_3AD, nil, []netlink.Link{slave(5, backup, synchronized)}, true},
		{"no partner answers, so one works alone", netlink.BOND_MODE_802_3AD, make(net.HardwareAddr, 6), []netlink.Link{slave(5, active, synchronized)}, false},
		{"the partner does not receive yet", netlink.BOND_MODE_802_3AD, partner, []netlink.Link{slave(5, active, synchronized), slave(5, active, collects)}, true},
		{"one of two is in", netlink.BOND_MODE_802_3AD, partner, []netlink.Link{slave(5, active, synchronized), slave(5, active, distributes)}, false},
		{"one of another bond is in", netlink.BOND_MODE_802_3AD, partner, []netlink.Link{slave(6, active, distributes)}, true},
		{"a mode without LACP", netlink.BOND_MODE_ACTIVE_BACKUP, nil, []netlink.Link{slave(5, backup, 0)}, false},
	} {
		bond := &netlink.Bond{LinkAttrs: netlink.LinkAttrs{Index: 5}, Mode: row.mode, AdInfo: &netlink.BondAdInfo{PartnerMac: row.partner}}
		check.Equal(t, negotiates(bond, row.slaves), row.want, "%s:", row.name)
	}
}
