// SPDX-License-Identifier: Apache-2.0

package hazard

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestHazardsOfAParentSayWhatTheyDoAndWhatToDo(t *testing.T) {
	alb := errors.New("bond bond0 is in mode balance-alb")
	for name, row := range map[string]struct {
		facts Facts
		want  []Kind
		says  string
		fault bool
	}{
		"nothing":                  {Facts{}, nil, "", false},
		"an XDP program":           {Facts{XDP: 7}, []Kind{XDP}, "XDP program 7", true},
		"an offload":               {Facts{Offload: true}, []Kind{Offload}, "ethtool -K", true},
		"a bond that changes MACs": {Facts{Rewrites: alb}, []Kind{Bond}, "bond0", true},
		"programs of others":       {Facts{Others: []string{"ingress cil (ID 3)"}}, []Kind{Programs}, "ingress cil (ID 3)", false},
		"all":                      {Facts{7, []string{"x"}, true, alb}, []Kind{XDP, Offload, Bond, Programs}, "XDP program 7", true},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []Kind
			found := Of(row.facts)
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

func TestANodeTellsOfAHazardOnceAndNotInAFlood(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(0, 0))
	recorder := events.NewFakeRecorder(20)
	var facts Facts
	var failure error
	parents := []Parent{{2, "eth1"}}
	present := map[Kind]bool{}
	w := New(Options{
		Node: "n1", Parents: func() []Parent { return parents }, Look: func(int) (Facts, error) { return facts, failure },
		Present: func(_ string, k Kind, is bool) { present[k] = is }, Forget: func(string) { clear(present) },
		Events: recorder, Log: testr.New(t), Clock: now,
	})
	for _, step := range []struct {
		name    string
		after   time.Duration
		facts   Facts
		failure error
		want    string
	}{
		{"nothing", 0, Facts{}, nil, ""},
		{"a program comes", 1, Facts{XDP: 7}, nil, "Warning ParentHazard parent eth1: the XDP program 7"},
		{"it stays", time.Hour, Facts{XDP: 7}, nil, ""},
		{"it cannot be read for a moment", 1, Facts{}, errors.New("busy"), ""},
		{"it is still the same", time.Hour, Facts{XDP: 7}, nil, ""},
		{"another one has its place", time.Hour, Facts{XDP: 8}, nil, "Warning ParentHazard parent eth1: the XDP program 8"},
		{"it goes", 1, Facts{}, nil, ""},
		{"it comes back at once", 1, Facts{XDP: 8}, nil, ""},
		{"it is still there later", tellInterval, Facts{XDP: 8}, nil, "Warning ParentHazard parent eth1: the XDP program 8"},
		{"another project listens", 1, Facts{XDP: 8, Others: []string{"ingress cil (ID 3)"}}, nil, "Normal ParentShared parent eth1: programs of others"},
	} {
		now.Step(step.after)
		facts, failure = step.facts, step.failure
		w.Pass()
		var got string
		select {
		case got = <-recorder.Events:
		default:
		}
		if !strings.HasPrefix(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("%s: got event %q, want %q", step.name, got, step.want)
		}
	}
	faults := w.Faults("eth1")
	check.That(t, len(faults) == 1 && present[XDP] && present[Programs] && !present[Offload], "faults %q, metric %v", faults, present)
	parents = nil
	w.Pass()
	if faults := w.Faults("eth1"); len(faults) != 0 || len(present) != 0 {
		t.Errorf("a parent that is gone has faults %q and series %v", faults, present)
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
	if !isOn(names, states, "l2-fwd-offload") || isOn(names, states, "rx") || isOn(names, states, "none") || isOn(names, nil, "rx") {
		t.Error("the wrong features are on")
	}
}
