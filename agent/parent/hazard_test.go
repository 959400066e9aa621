// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

func TestHazardsOfAParentSayWhatTheyDoAndWhatToDo(t *testing.T) {
	alb := errors.New("bond bond0 is in mode balance-alb")
	for name, row := range map[string]struct {
		facts HazardFacts
		want  []HazardKind
		says  string
		fault bool
	}{
		"nothing":                  {HazardFacts{}, nil, "", false},
		"an XDP program":           {HazardFacts{XDP: []string{"7 on eth1"}}, []HazardKind{XDP}, "7 on eth1", true},
		"one on the device too":    {HazardFacts{XDP: []string{"8 on eth1.5", "7 on eth1"}}, []HazardKind{XDP}, "8 on eth1.5, 7 on eth1", true},
		"an offload":               {HazardFacts{Offload: true}, []HazardKind{Offload}, "ethtool -K", true},
		"a bond that changes MACs": {HazardFacts{Rewrites: alb}, []HazardKind{Bond}, "bond0", true},
		"in the observer's place":  {HazardFacts{Others: []string{"x"}, Blocked: errors.New("an ingress qdisc; remove it")}, []HazardKind{Filters}, "an ingress qdisc", true},
		"programs of others":       {HazardFacts{Others: []string{"ingress cil (ID 3)"}}, []HazardKind{Programs}, "ingress cil (ID 3)", false},
		"all":                      {HazardFacts{XDP: []string{"7 on eth1"}, Others: []string{"x"}, Offload: true, Rewrites: alb}, []HazardKind{XDP, Offload, Bond, Programs}, "7 on eth1", true},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []HazardKind
			found := HazardsOf(row.facts)
			for _, h := range found {
				kinds = append(kinds, h.Kind)
				check.That(t, strings.Contains(h.Text, "; "), "%q has no remedy", h.Text)
			}
			check.Same(t, kinds, row.want, "hazards")
			if len(found) > 0 && (!strings.Contains(found[0].Text, row.says) || found[0].IsFault() != row.fault) {
				t.Errorf("got %+v, want %q and fault %v", found[0], row.says, row.fault)
			}
		})
	}
}

// rig is a watch of parents whose facts the test sets.
type rig struct {
	*Hazards
	parents map[int]string
	facts   HazardFacts
	failure error
	present map[HazardKind]bool
	events  *events.FakeRecorder
	now     *clocktesting.FakeClock
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		parents: map[int]string{2: "eth1"}, present: map[HazardKind]bool{}, events: events.NewFakeRecorder(20), now: clocktesting.NewFakeClock(time.Unix(0, 0)),
	}
	r.Hazards = NewHazards(HazardOptions{
		Reporter: event.Reporter{Node: "n1", Events: r.events, Log: testr.New(t), Clock: r.now},
		Parents:  func() map[int]string { return r.parents }, Look: func(int) (HazardFacts, error) { return r.facts, r.failure },
		Present: func(_ string, k HazardKind, is bool) { r.present[k] = is }, Forget: func(string) { clear(r.present) },
	})
	return r
}

func TestANodeTellsOfAHazardOnceAndNotInAFlood(t *testing.T) {
	r := newRig(t)
	seven, eight := []string{"7 on eth1"}, []string{"8 on eth1"}
	for _, step := range []struct {
		name    string
		after   time.Duration
		facts   HazardFacts
		failure error
		want    string
	}{
		{"nothing", 0, HazardFacts{}, nil, ""},
		{"a program comes", 1, HazardFacts{XDP: seven}, nil, "Warning ParentHazard parent eth1: XDP programs see frames before the agent: 7 on eth1"},
		{"it stays", time.Hour, HazardFacts{XDP: seven}, nil, ""},
		{"it cannot be read for a moment", 1, HazardFacts{Unread: HazardKinds()}, errors.New("busy"), ""},
		{"it is still the same", time.Hour, HazardFacts{XDP: seven}, nil, ""},
		{"another one has its place", time.Hour, HazardFacts{XDP: eight}, nil, "Warning ParentHazard parent eth1: XDP programs see frames before the agent: 8 on eth1"},
		{"it goes", 1, HazardFacts{}, nil, ""},
		{"it comes back at once", 1, HazardFacts{XDP: eight}, nil, ""},
		{"it is still there later", hazardInterval, HazardFacts{XDP: eight}, nil, "Warning ParentHazard parent eth1: XDP programs see frames before the agent: 8 on eth1"},
		{"another project listens", 1, HazardFacts{XDP: eight, Others: []string{"ingress cil (ID 3)"}}, nil, "Normal ParentShared parent eth1: programs of others"},
	} {
		r.now.Step(step.after)
		r.facts, r.failure = step.facts, step.failure
		r.Pass()
		var got string
		select {
		case got = <-r.events.Events:
		default:
		}
		check.That(t, strings.HasPrefix(got, step.want) && (got == "") == (step.want == ""), "%s: got event %q, want %q", step.name, got, step.want)
	}
	faults := r.Faults("eth1")
	check.That(t, len(faults) == 1 && r.present[XDP] && r.present[Programs] && !r.present[Offload], "faults %q, metric %v", faults, r.present)
	r.parents = nil
	r.Pass()
	check.None(t, r.Faults("eth1"), "a parent that is gone has faults")
	check.None(t, r.present, "a parent that is gone has series")
}

func TestAHazardIsToldOfAgainIfItsParentWasGone(t *testing.T) {
	r := newRig(t)
	r.facts.Offload = true
	here := r.parents
	for _, step := range []struct {
		name    string
		parents map[int]string
		after   time.Duration
		told    int
	}{
		{"it is there", here, 0, 1},
		{"the parent goes", nil, 1, 1},
		{"it is made again at once", here, 1, 1},
		{"it is still there later", here, hazardInterval, 2},
		{"it stays", here, hazardInterval, 2},
		{"the parent goes again", nil, 1, 2},
		{"it is made again later", here, hazardInterval, 3},
	} {
		r.parents = step.parents
		r.now.Step(step.after)
		r.Pass()
		check.Equal(t, len(r.events.Events), step.told, "%s: events:", step.name)
	}
}

func TestAHazardThatCannotBeReadIsStillThere(t *testing.T) {
	r := newRig(t)
	busy := errors.New("busy")
	for _, step := range []struct {
		name    string
		facts   HazardFacts
		failure error
		want    []HazardKind
	}{
		{"nothing can be read at first", HazardFacts{Unread: HazardKinds()}, busy, nil},
		{"a program and an offload come", HazardFacts{XDP: []string{"7 on eth1"}, Offload: true}, nil, []HazardKind{XDP, Offload}},
		{"nothing can be read", HazardFacts{Unread: HazardKinds()}, busy, []HazardKind{XDP, Offload}},
		{"nor a moment later", HazardFacts{Unread: HazardKinds()}, busy, []HazardKind{XDP, Offload}},
		{"the program is gone, the features cannot be read", HazardFacts{Unread: []HazardKind{Offload}}, busy, []HazardKind{Offload}},
		{"both are gone", HazardFacts{}, nil, nil},
	} {
		r.facts, r.failure = step.facts, step.failure
		r.Pass()
		check.Equal(t, len(r.Faults("eth1")), len(step.want), "%s: faults:", step.name)
		for _, k := range HazardKinds() {
			check.Equal(t, r.present[k], slices.Contains(step.want, k), "%s: the metric of %s:", step.name, k)
		}
	}
}

func TestAFeatureIsFoundByItsName(t *testing.T) {
	names := make([]uint32, 40*stringLength)
	put := func(i int, text string) {
		for j, c := range []byte(text) {
			names[i*stringLength+j/4] |= uint32(c) << (j % 4 * 8)
		}
	}
	put(0, "rx")
	put(33, "l2-fwd-offload")
	states := make([]uint32, 2*4)
	states[1*4+1] = 1 << 1 // requested, and not active
	check.That(t, !isOn(names, states, "l2-fwd-offload"), "a feature that is only requested is on")
	states[1*4+2] = 1 << 1
	check.That(t, isOn(names, states, "l2-fwd-offload"), "an active feature is off")
	check.That(t, !isOn(names, states, "rx") && !isOn(names, states, "none") && !isOn(names, nil, "rx"), "the wrong features are on")
}
