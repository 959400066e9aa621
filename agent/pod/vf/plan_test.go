// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"maps"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/fenceline/fenceline/test/check"
)

func TestWhatAPFIsToldAndLacks(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	const disabled, auto = nl.IFLA_VF_LINK_STATE_DISABLE, nl.IFLA_VF_LINK_STATE_AUTO
	refusesAll := map[Wall]bool{Off: true, SpoofCheck: true}
	for name, row := range map[string]struct {
		present netlink.VfInfo
		wanted  wanted
		refused map[Wall]bool
		changes map[Wall]bool
		missing []Wall
	}{
		"all walls stand":                                    {netlink.VfInfo{Mac: mac, Spoofchk: true, LinkState: auto}, wanted{checked: true}, nil, nil, nil},
		"a fenced VF is switched off":                        {netlink.VfInfo{Mac: mac, Spoofchk: true}, wanted{off: true, checked: true}, nil, map[Wall]bool{Off: true}, []Wall{Off}},
		"a proven one is switched on":                        {netlink.VfInfo{Mac: mac, Spoofchk: true, LinkState: disabled}, wanted{checked: true}, nil, map[Wall]bool{Off: false}, nil},
		"a VF in the dead VLAN is off":                       {netlink.VfInfo{Mac: mac, Spoofchk: true, Vlan: DeadVLAN}, wanted{off: true, checked: true}, nil, nil, nil},
		"and comes out of it":                                {netlink.VfInfo{Mac: mac, Spoofchk: true, Vlan: DeadVLAN}, wanted{checked: true}, nil, map[Wall]bool{Off: false}, nil},
		"without a guard its state is not enough":            {netlink.VfInfo{Mac: mac, LinkState: disabled}, wanted{off: true, alone: true}, nil, map[Wall]bool{Off: true}, []Wall{Off}},
		"but the dead VLAN is":                               {netlink.VfInfo{Mac: mac, LinkState: disabled, Vlan: DeadVLAN}, wanted{off: true, alone: true}, nil, nil, nil},
		"the check is switched on":                           {netlink.VfInfo{Mac: mac}, wanted{checked: true}, nil, map[Wall]bool{SpoofCheck: true}, nil},
		"several MACs need no check":                         {netlink.VfInfo{Mac: mac}, wanted{}, nil, nil, nil},
		"a PF that has no MAC and trusts":                    {netlink.VfInfo{Mac: make(net.HardwareAddr, 6), Spoofchk: true, Trust: 1}, wanted{checked: true}, nil, nil, []Wall{MAC, Distrust}},
		"a VF that is off, on a PF that has refused another": {netlink.VfInfo{Mac: mac, LinkState: disabled}, wanted{off: true}, map[Wall]bool{Off: true}, nil, nil},
		"a VF that is on there, and would stay on":           {netlink.VfInfo{Mac: mac}, wanted{}, map[Wall]bool{Off: true}, nil, []Wall{Off}},
		"a driver that knows neither setting":                {netlink.VfInfo{Mac: mac}, wanted{off: true, checked: true}, refusesAll, map[Wall]bool{Off: true, SpoofCheck: true}, []Wall{Off, SpoofCheck}},
	} {
		t.Run(name, func(t *testing.T) {
			got := changes(row.present, row.wanted)
			check.That(t, maps.Equal(got, row.changes), "changes: got %v, want %v", got, row.changes)
			check.List(t, missing(row.present, row.wanted, func(w Wall) bool { return row.refused[w] }), row.missing, "missing")
		})
	}
}

func TestTheVLANOfAVFIsOnItsPFOrTheBondOfThePF(t *testing.T) {
	vlan := func(name string, index, on, id int) netlink.Link {
		return &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, Index: index, ParentIndex: on}, VlanId: id}
	}
	pf := &netlink.LinkAttrs{Name: "eth1", Index: 3, MasterIndex: 7}
	links := []netlink.Link{
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "eth1", Index: 3}},
		vlan("eth0.5", 10, 2, 5), vlan("eth1.6", 11, 3, 6), vlan("bond0.5", 12, 7, 5),
	}
	for id, want := range map[int]string{5: "bond0.5", 6: "eth1.6", 8: ""} {
		got := ""
		if sub := subinterface(links, pf, id); sub != nil {
			got = sub.Name
		}
		check.Equal(t, got, want, "VLAN %d: got", id)
	}
}
