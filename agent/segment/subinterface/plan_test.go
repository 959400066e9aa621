// SPDX-License-Identifier: Apache-2.0

package subinterface

import (
	"strconv"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestANetworkNeedsTheSubinterfacesThatItNames(t *testing.T) {
	for name, row := range map[string]struct {
		network Network
		want    string
		refused string
	}{
		"a parent and its VLAN":          {Network{Parents: []string{"eth1"}, VLAN: 100}, "eth1.100=100@eth1 any", ""},
		"a name with its VLAN":           {Network{Parents: []string{"eth1.100"}}, "eth1.100=100@eth1", ""},
		"both":                           {Network{Parents: []string{"eth1.100"}, VLAN: 100}, "eth1.100=100@eth1", ""},
		"both, and they differ":          {Network{Parents: []string{"eth1.100"}, VLAN: 7}, "", ""},
		"a parent without a VLAN":        {Network{Parents: []string{"eth1"}}, "", ""},
		"a parent that is not allowed":   {Network{Parents: []string{"eth0", "eth0.5"}, VLAN: 5}, "", ""},
		"each of several parents":        {Network{Parents: []string{"eth1", "bond0"}, VLAN: 5}, "eth1.5=5@eth1 any, bond0.5=5@bond0 any", ""},
		"a VLAN on a VLAN":               {Network{Parents: []string{"bond0.7"}, VLAN: 5}, "", ""},
		"an ID over the greatest":        {Network{Parents: []string{"eth1.4095"}}, "", ""},
		"an ID of zero":                  {Network{Parents: []string{"eth1.0"}}, "", ""},
		"an ID with a zero before it":    {Network{Parents: []string{"eth1.007"}}, "", ""},
		"a name that is no number":       {Network{Parents: []string{"eth1.blue"}}, "", ""},
		"a name that no interface takes": {Network{Of: "pool floor", Parents: []string{"enp130s0f0np0"}, VLAN: 100}, "", "at most 15 characters"},
		"a name of the greatest length":  {Network{Parents: []string{"enp130s0f0n.100"}}, "enp130s0f0n.100=100@enp130s0f0n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			wanted, refused := Needs([]Network{row.network}, []string{"eth1", "bond0", "enp130s0f0np0", "enp130s0f0n"})
			check.Same(t, text(wanted), row.want, "wanted")
			var why string
			for _, err := range refused {
				why = err.Error()
			}
			check.That(t, strings.Contains(why, row.refused) && (why == "") == (row.refused == ""), "refused %q, want %q", why, row.refused)
		})
	}
}

func TestTheNameCountsIfOneOfTheNetworksGivesIt(t *testing.T) {
	wanted, _ := Needs([]Network{{Parents: []string{"eth1"}, VLAN: 5}, {Parents: []string{"eth1.5"}}}, []string{"eth1"})
	check.Equal(t, text(wanted), "eth1.5=5@eth1", "wanted")
}

func text(wanted []Wanted) string {
	var all []string
	for _, w := range wanted {
		word := w.Name + "=" + strconv.Itoa(w.ID) + "@" + w.Parent
		if w.AnyName {
			word += " any"
		}
		all = append(all, word)
	}
	return strings.Join(all, ", ")
}

func TestThePlanChangesOnlyWhatFencelineMade(t *testing.T) {
	eth1, eth2 := Link{Name: "eth1", Index: 2, Up: true}, Link{Name: "eth2", Index: 3, Up: true}
	vlan := func(name string, index, id, lower int) Link {
		return Link{Name: name, Index: index, VLAN: id, Lower: lower, Up: true}
	}
	ours := func(l Link) Link { l.Ours = true; return l }
	used := func(l Link) Link { l.Used = true; return l }
	down := func(l Link) Link { l.Up = false; return l }
	right := vlan("eth1.100", 9, 100, 2)
	byName := Wanted{Name: "eth1.100", Parent: "eth1", ID: 100, Of: "pool floor"}
	byID := byName
	byID.AnyName = true
	for name, row := range map[string]struct {
		wanted  []Wanted
		links   []Link
		want    string
		refused string
	}{
		"it is missing":                         {[]Wanted{byName}, []Link{eth1}, "make eth1.100", ""},
		"its parent is missing":                 {[]Wanted{byName}, []Link{eth2}, "", ""},
		"somebody made it":                      {[]Wanted{byName}, []Link{eth1, right}, "", ""},
		"somebody made it, and it is down":      {[]Wanted{byName}, []Link{eth1, down(right)}, "", ""},
		"we made it":                            {[]Wanted{byName}, []Link{eth1, ours(right)}, "", ""},
		"we made it, and it is down":            {[]Wanted{byName}, []Link{eth1, ours(down(right))}, "up eth1.100", ""},
		"nobody wants it":                       {nil, []Link{eth1, ours(right)}, "remove eth1.100", ""},
		"nobody wants it, and it is used":       {nil, []Link{eth1, used(ours(right))}, "", ""},
		"nobody wants what somebody made":       {nil, []Link{eth1, right}, "", ""},
		"the name has another ID":               {[]Wanted{byName}, []Link{eth1, vlan("eth1.100", 9, 200, 2)}, "", "is VLAN 200 of eth1, not VLAN 100 of eth1"},
		"the name has another parent":           {[]Wanted{byName}, []Link{eth1, eth2, vlan("eth1.100", 9, 100, 3)}, "", "is VLAN 100 of eth2, not VLAN 100 of eth1"},
		"the name has a parent elsewhere":       {[]Wanted{byName}, []Link{eth1, vlan("eth1.100", 9, 100, 0)}, "", "an interface elsewhere"},
		"the name is that of a dummy":           {[]Wanted{byName}, []Link{eth1, {Name: "eth1.100", Index: 9}}, "", "is no VLAN subinterface"},
		"the VLAN has another name":             {[]Wanted{byName}, []Link{eth1, vlan("blue", 9, 100, 2)}, "", "VLAN 100 of eth1 is interface blue already"},
		"the VLAN has another name, which does": {[]Wanted{byID}, []Link{eth1, vlan("blue", 9, 100, 2)}, "", ""},
		"ours was renamed, which does":          {[]Wanted{byID}, []Link{eth1, ours(vlan("blue", 9, 100, 2))}, "", ""},
		"the parent of ours was renamed":        {[]Wanted{byName}, []Link{{Name: "lan", Index: 2}, ours(right)}, "", ""},
		"the same ID on another parent":         {[]Wanted{byName}, []Link{eth1, eth2, vlan("eth2.100", 9, 100, 3)}, "make eth1.100", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := MakePlan(row.wanted, row.links)
			var did []string
			for _, w := range p.Make {
				did = append(did, "make "+w.Name)
			}
			for _, l := range p.SetUp {
				did = append(did, "up "+l.Name)
			}
			for _, l := range p.Remove {
				did = append(did, "remove "+l.Name)
			}
			check.Same(t, strings.Join(did, ", "), row.want, "plan")
			var why string
			for name, err := range p.Refused {
				why = err.Error()
				if name != "eth1.100" || !strings.Contains(why, "; ") || !strings.Contains(why, "pool floor") {
					t.Errorf("%s: %q names no network or no remedy", name, why)
				}
			}
			check.That(t, strings.Contains(why, row.refused) && (why == "") == (row.refused == ""), "refused %q, want %q", why, row.refused)
		})
	}
}
