// SPDX-License-Identifier: Apache-2.0

package subinterface

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

// node is a node without a kernel: the kernel of the machine of a developer may lack 802.1Q. The test with
// a kernel is TestGuestSubinterfacesComeAndGo.
type node struct {
	links   []Link
	failure error
}

func (n *node) Links() ([]Link, error) { return slices.Clone(n.links), nil }

func (n *node) Make(w Wanted) error {
	if n.failure != nil {
		return n.failure
	}
	n.links = append(n.links, Link{Name: w.Name, Index: 100 + len(n.links), VLAN: w.ID, Lower: 2, Up: true, Ours: true})
	return nil
}

func (n *node) SetUp(l Link) error {
	n.links[slices.IndexFunc(n.links, func(o Link) bool { return o.Index == l.Index })].Up = true
	return nil
}

func (n *node) Remove(l Link) error {
	n.links = slices.DeleteFunc(n.links, func(o Link) bool { return o.Index == l.Index })
	return nil
}

func (n *node) has(name string) bool {
	return slices.ContainsFunc(n.links, func(l Link) bool { return l.Name == name })
}

func TestASubinterfaceLastsAsLongAsANetworkOrAPodNeedsIt(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(0, 0))
	recorder := events.NewFakeRecorder(20)
	on := &node{links: []Link{{Name: "eth1", Index: 2, Up: true}}}
	var networks []Network
	var unknown error
	var pods bool
	var faults int
	var asked []int
	k := New(Options{
		Reporter: event.Reporter{Node: "n1", Events: recorder, Log: testr.New(t), Clock: now},
		Parents:  []string{"eth1"}, Networks: func() ([]Network, error) { return networks, unknown },
		Used: func(index int) bool { asked = append(asked, index); return pods }, Kernel: on, Faults: func(n int) { faults = n },
	})
	floor := []Network{{Of: "pool floor", Parents: []string{"eth1"}, VLAN: 100}}
	for _, step := range []struct {
		name   string
		do     func()
		has    bool
		event  string
		faults int
	}{
		{"no network", func() {}, false, "", 0},
		{"the kernel refuses", func() { networks, on.failure = floor, ErrNoVLANs }, false, "Warning SubinterfaceRefused make eth1.100 for pool floor", 1},
		{"it refuses again", func() {}, false, "", 1},
		{"it makes one", func() { on.failure = nil }, true, "Normal SubinterfaceMade eth1.100", 0},
		{"it is left alone", func() {}, true, "", 0},
		{"somebody removes it", func() { on.links = on.links[:1] }, true, "Normal SubinterfaceMade eth1.100", 0},
		{"the node boots", func() { on.links = []Link{{Name: "eth1", Index: 2}}; k.unneeded = map[int]time.Time{} }, true, "Normal SubinterfaceMade eth1.100", 0},
		{"the pool goes", func() { networks = nil }, true, "", 0},
		{"a moment later", func() { now.Step(unneededFor - 1) }, true, "", 0},
		{"the pool is back", func() { networks = floor; now.Step(unneededFor) }, true, "", 0},
		{"the pool goes for good", func() { networks, pods = nil, true; now.Step(unneededFor) }, true, "", 0},
		{"its pods stay for long", func() { now.Step(time.Hour) }, true, "", 0},
		{"the pods go", func() { pods = false }, true, "", 0},
		{"the API server is away", func() { unknown = errors.New("away"); now.Step(unneededFor) }, true, "Warning SubinterfaceRefused find the networks that need VLAN subinterfaces: away", 0},
		{"it is still away", func() {}, true, "", 0},
		{"it is back", func() { unknown = nil }, false, "Normal SubinterfaceRemoved eth1.100", 0},
	} {
		step.do()
		k.Pass()
		var got string
		select {
		case got = <-recorder.Events:
		default:
		}
		if on.has("eth1.100") != step.has || !strings.HasPrefix(got, step.event) || (got == "") != (step.event == "") || faults != step.faults {
			t.Errorf("%s: there is one: %v, event %q, %d faults; want %v, %q, %d", step.name, on.has("eth1.100"), got, faults, step.has, step.event, step.faults)
		}
	}
	check.That(t, !slices.Contains(asked, 2), "the journal is searched for the pods of an interface that others made")
}

func TestWithoutTheSettingOnlyWhatWasMadeBeforeIsKept(t *testing.T) {
	on := &node{links: []Link{{Name: "eth1", Index: 2}}}
	k := New(Options{
		Reporter: event.Reporter{Node: "n1", Events: events.NewFakeRecorder(1), Log: testr.New(t), Clock: clocktesting.NewFakeClock(time.Unix(0, 0))},
		Networks: func() ([]Network, error) { return []Network{{Parents: []string{"eth1.5"}}}, nil },
		Used:     func(int) bool { return true }, Kernel: on, Faults: func(int) {},
	})
	check.OK(t, k.Run(t.Context())) // it returns at once
	check.Equal(t, len(on.links), 1, "links:")
	on.links = append(on.links, Link{Name: "eth1.5", Index: 9, VLAN: 5, Lower: 2, Ours: true})
	check.That(t, k.Pass(), "one that pods still use is forgotten")
}

func TestANodeWithoutSubinterfacesReportsNothing(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	k := New(Options{
		Reporter: event.Reporter{Node: "n1", Events: recorder, Log: testr.New(t), Clock: clocktesting.NewFakeClock(time.Unix(0, 0))},
		Networks: func() ([]Network, error) { return nil, errors.New("away") }, Used: func(int) bool { return false },
		Kernel: &node{links: []Link{{Name: "eth1", Index: 2}}}, Faults: func(int) {},
	})
	check.That(t, !k.Pass() && len(recorder.Events) == 0, "an event about networks that need nothing of the agent")
}

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

func TestAnAlternativeNameIsAsGoodAsTheName(t *testing.T) {
	links := []Link{{Name: "eth1", Index: 2, AltNames: []string{"uplink", "lan"}}}
	for name, row := range map[string]struct {
		network Network
		allowed string
		want    string
	}{
		"of the network":                {Network{Parents: []string{"uplink"}, VLAN: 5}, "eth1", "make eth1.5 on eth1"},
		"of the setting":                {Network{Parents: []string{"eth1"}, VLAN: 5}, "uplink", "make eth1.5 on eth1"},
		"of both, and they differ":      {Network{Parents: []string{"uplink"}, VLAN: 5}, "lan", "make eth1.5 on eth1"},
		"in the name of a subinterface": {Network{Parents: []string{"uplink.5"}}, "eth1", "make uplink.5 on uplink"},
		"of no interface":               {Network{Parents: []string{"wan"}, VLAN: 5}, "eth1", ""},
	} {
		wanted, _ := Needs(known([]Network{row.network}, []string{row.allowed}, links))
		got := ""
		for _, w := range MakePlan(wanted, links).Make {
			got += "make " + w.Name + " on " + w.Parent
		}
		check.Equal(t, got, row.want, "%s:", name)
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
	port, bridge := eth1, Link{Name: "br0", Index: 4, Up: true, Filters: true}
	port.Master, port.Untagged = bridge.Index, map[int]bool{1: true, 100: true}
	other, native := port, bridge
	other.Untagged, native.Name, native.Untagged = map[int]bool{1: true}, "eth1", map[int]bool{100: true}
	tagged := native
	tagged.Untagged = map[int]bool{1: true, 100: false}
	plain, ovs, switched := bridge, bridge, eth1
	plain.Filters, ovs.Filters, ovs.Switch, switched.Switched = false, false, true, true
	onBridge := Wanted{Name: "br0.100", Parent: "br0", ID: 100, Of: "pool floor"}
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
		"on a port of a bridge that filters":    {[]Wanted{byID}, []Link{port, bridge}, "", "eth1 is a port of bridge br0, which filters VLANs and would lose VLAN 100"},
		"on such a bridge, and on its port":     {[]Wanted{byID, onBridge}, []Link{port, bridge}, "make br0.100", ""},
		"on a port that is not in the VLAN":     {[]Wanted{byID}, []Link{other, bridge}, "make eth1.100", ""},
		"on such a bridge, and on such a port":  {[]Wanted{byID, onBridge}, []Link{other, bridge}, "make br0.100", ""},
		"on a bridge in the VLAN without a tag": {[]Wanted{byID}, []Link{native}, "", "VLAN 100 has no tag on bridge eth1 itself"},
		"on a bridge in the VLAN with a tag":    {[]Wanted{byID}, []Link{tagged}, "make eth1.100", ""},
		"on a port of another bridge":           {[]Wanted{byID}, []Link{port, plain}, "make eth1.100", ""},
		"on a port of Open vSwitch":             {[]Wanted{byID}, []Link{switched}, "", "eth1 is a port of Open vSwitch, which would lose VLAN 100"},
		"on it, and on its bridge":              {[]Wanted{byID, onBridge}, []Link{switched, ovs}, "make br0.100", ""},
		"on it, and on another interface":       {[]Wanted{byID, {Name: "eth2.100", Parent: "eth2", ID: 100, Of: "pool floor"}}, []Link{switched, eth2}, "make eth2.100", "eth1 is a port of Open vSwitch, which would lose VLAN 100"},
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
