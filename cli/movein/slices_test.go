// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// slicedFacts are two pods of a network that whereabouts divides between two nodes.
func slicedFacts() Facts {
	f := facts()
	f.Definitions[0].Config = strings.Replace(config, `"range":`, `"node_slice_size":"28","range":`, 1)
	f.Slices = []NodeSlices{{"kube-system", "vlan100", "10.100.0.0/24", "/28", []NodeSlice{{"n1", "10.100.0.0/28"}, {"", "10.100.0.16/28"}, {"n2", "10.100.0.32/28"}}}}
	f.Records = []Records{{"n1-10.100.0.0-28", "10.100.0.0/28", map[string]Allocation{"10": {"c1", "shop/web-1", "net1"}, "11": {ID: "fenceline-move/shop.vlan100"}, "12": {ID: "fenceline-move/shop.other"}}, ""}}
	f.Pods = f.Pods[:1]
	return f
}

func TestANetworkThatIsDividedBetweenNodes(t *testing.T) {
	f := slicedFacts()
	p := PlanOf(f)
	check.That(t, f.AreSliced() && !facts().AreSliced(), "NodeSlicePools are read for other networks, or not for this one")
	m := &v1alpha1.Move{Spec: v1alpha1.MoveSpec{Definitions: p.Definitions()}}
	moving := slicedFacts()
	moving.Definitions[0].Config = p.Changes[0].Switched
	check.That(t, !moving.AreSliced() && moving.Before(m).AreSliced(), "NodeSlicePools are not read during the move")
	check.None(t, p.Blocks, "blocks:")
	check.List(t, p.Pools[0].Spec.IPs, []string{"10.100.0.0-10.100.0.15", "10.100.0.32-10.100.0.47"}, "the pool has")
	check.Says(t, strings.Join(p.Notes, "\n"), "whereabouts ignores its range_start, range_end and exclude, and so does the pool")
	check.That(t, !strings.Contains(p.Changes[0].Frozen, "node_slice_size") && strings.Contains(p.Changes[0].Frozen, `"10.100.0.0/24"`), "frozen: %s", p.Changes[0].Frozen)
	check.Equal(t, check.Value(p.Changes[0].Returned([]netip.Addr{netip.MustParseAddr("10.100.0.5")}))(t), p.Changes[0].Frozen, "with an address of Fenceline, the definition goes back as")
	check.Equal(t, check.Value(p.Changes[0].Returned(nil))(t), f.Definitions[0].Config, "the definition goes back as")
	check.Must(t, len(p.Records) == 2, "records %v", p.Records)
	check.Equal(t, p.Records[0].Address+p.Records[0].Hold, "10.100.0.10", "the first record")
	check.Equal(t, p.Records[1].Address+p.Records[1].Hold, "10.100.0.12its record names no pod", "the second record")
	check.List(t, p.Holes(), []string{"the records of whereabouts lack 25 allocations of the move, such as that of 10.100.0.1"}, "holes")

	namespace, all := Marks(p, "shop/vlan100", p.Freeze())
	check.Equal(t, fmt.Sprint(namespace, len(all), len(all[0].Allocations), len(all[1].Allocations), all[1].Allocations["1"]), "kube-system2 14 14 {fenceline-move/shop.vlan100  }", "the freeze writes")
	f.Slices[0].Slices[0].Node = "" // the node has gone
	f.Slices[0].Slices[1].Node = "n3"
	_, all = Marks(PlanOf(f), "shop/vlan100", nil)
	check.Must(t, len(all) == 3, "%v", all)
	check.Equal(t, all[2].Name+fmt.Sprint(len(all[2].Allocations)), "n1-10.100.0.0-280", "the end of the move clears")
}

// A NodeSlicePool goes with its definition, also if that is made anew.
func TestTheNodeSlicePoolOfAMoveGoes(t *testing.T) {
	f := slicedFacts()
	f.Slices = nil
	check.That(t, len(PlanOf(f).Changes) == 0, "a move begins without a NodeSlicePool")
	f.Moving = []v1alpha1.MoveDefinition{{Namespace: "shop", Name: "vlan100", Config: f.Definitions[0].Config}}
	p := PlanOf(f)
	check.Must(t, len(p.Changes) == 1, "without records, the plan has %d definitions: %v", len(p.Changes), p.Blocks)
	marked := map[string]Allocation{"1": {ID: Mark(f.Network)}}
	f.Records[0].Namespace = "kube-system"
	f.Records = append(f.Records, Records{"n2-10.100.0.32-28", "10.100.0.32/28", marked, "kube-system"}, Records{"n2-10.100.0.64-29", "10.100.0.64/29", nil, "other"},
		Records{"10.100.0.16-28", "10.100.0.16/28", nil, "other"}, Records{"n1-10.200.0.0-28", "10.200.0.0/28", nil, "other"})
	p = PlanOf(f)
	check.Must(t, len(p.Changes) == 1, "the plan has %d definitions: %v", len(p.Changes), p.Blocks)
	check.Equal(t, check.Value(p.Changes[0].Returned([]netip.Addr{netip.MustParseAddr("10.100.0.33")}))(t), p.Changes[0].Frozen, "the way back with a lease:")
	check.That(t, len(p.Records) == 2 && p.Records[0].Hold == "" && p.Records[0].Pod == "web-1", "records: %v", p.Records)
	namespace, all := Marks(p, f.Network, nil)
	check.Must(t, len(all) == 2, "%v", all)
	check.Equal(t, namespace+" "+all[0].Name+" "+all[1].Name, "kube-system n1-10.100.0.0-28 n2-10.100.0.32-28", "the end of the move clears")
	check.None(t, p.Strangers, "strangers:")
	check.Says(t, strings.Join(p.Blocks, "\n"), `its NodeSlicePool "vlan100" has gone`) // so no freeze begins
	frozen := FrozenSlices(f.From, f.Moving[0])
	check.Equal(t, p.Changes[0].StateOf(frozen), Frozen, "made anew as %s:", frozen)
	check.Equal(t, FrozenSlices(f.From, v1alpha1.MoveDefinition{Config: config}), "", "of a range that is not divided:")
}

func TestDividedNetworksThatDoNotMove(t *testing.T) {
	second := func(text string) func(*Facts) {
		return func(f *Facts) {
			f.Definitions = append(f.Definitions, Definition{Namespace: "shop", Name: "second", Config: text})
		}
	}
	for want, change := range map[string]func(*Facts){
		`there are 0 NodeSlicePools "vlan100" with 10.100.0.0/24 in parts of /28`: func(f *Facts) { f.Slices[0].Size = "/29" },
		`there are 2 NodeSlicePools "vlan100"`:                                    func(f *Facts) { f.Slices = append(f.Slices, f.Slices[0]) },
		"gives no node a part":                                                    func(f *Facts) { f.Slices[0].Slices = f.Slices[0].Slices[1:2] },
		`the part "10.0"`:                                                         func(f *Facts) { f.Slices[0].Slices[1].Range = "10.0" },
		"in different ways: end the pods of one of them and delete it, or move both by hand; never change node_slice_size or network_name in place": second(`{"ipam":{"type":"whereabouts","range":"10.100.0.0/24"}}`),
		"divides only one range of IPv4": func(f *Facts) {
			f.Definitions[0].Config = strings.Replace(f.Definitions[0].Config, "10.100.0.0/24", "2001:db8::/64", 1)
		},
		"16384 in a part, or 0 in all, are too many": func(f *Facts) {
			f.Definitions[0].Config = `{"name":"vlan100","ipam":{"type":"whereabouts","node_slice_size":"/18","range":"10.96.0.0/16"}}`
			f.Slices = []NodeSlices{{"kube-system", "vlan100", "10.96.0.0/16", "/18", []NodeSlice{{"n1", "10.96.0.0/18"}}}}
		},
	} {
		f := slicedFacts()
		change(&f)
		check.Says(t, strings.Join(PlanOf(f).Blocks, "\n"), want)
	}
	// Another one with the same parts moves too.
	f := slicedFacts()
	second(strings.Replace(f.Definitions[0].Config, "eth1.100", "eth2", 1))(&f)
	p := PlanOf(f)
	check.None(t, p.Blocks, "blocks:")
	_, all := Marks(p, "shop/vlan100", nil)
	check.Must(t, len(p.Changes) == 2 && len(all) == 2, "%d definitions, %d slices", len(p.Changes), len(all))
	check.Equal(t, p.Pools[0].Spec.Parents[1], "eth2", "parents")
	check.That(t, p.Held() == 1 && len(p.Records) == 2 && p.Records[0].Node == "n1", "records %v", p.Records)
}
