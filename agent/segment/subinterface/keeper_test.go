// SPDX-License-Identifier: Apache-2.0

package subinterface

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

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
		Name: "n1", Parents: []string{"eth1"}, Networks: func() ([]Network, error) { return networks, unknown },
		Used: func(index int) bool { asked = append(asked, index); return pods }, Node: on, Faults: func(n int) { faults = n },
		Events: recorder, Log: testr.New(t), Clock: now,
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
		Name: "n1", Networks: func() ([]Network, error) { return []Network{{Parents: []string{"eth1.5"}}}, nil },
		Used: func(int) bool { return true }, Node: on, Faults: func(int) {},
		Events: events.NewFakeRecorder(1), Log: testr.New(t), Clock: clocktesting.NewFakeClock(time.Unix(0, 0)),
	})
	if err := k.Run(t.Context()); err != nil || len(on.links) != 1 { // it returns at once
		t.Errorf("%v, %+v", err, on.links)
	}
	on.links = append(on.links, Link{Name: "eth1.5", Index: 9, VLAN: 5, Lower: 2, Ours: true})
	check.That(t, k.Pass(), "one that pods still use is forgotten")
}

func TestANodeWithoutSubinterfacesReportsNothing(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	k := New(Options{
		Name: "n1", Networks: func() ([]Network, error) { return nil, errors.New("away") }, Used: func(int) bool { return false },
		Node: &node{links: []Link{{Name: "eth1", Index: 2}}}, Faults: func(int) {}, Events: recorder, Log: testr.New(t),
		Clock: clocktesting.NewFakeClock(time.Unix(0, 0)),
	})
	check.That(t, !k.Pass() && len(recorder.Events) == 0, "an event about networks that need nothing of the agent")
}
