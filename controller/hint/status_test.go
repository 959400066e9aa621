// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"fmt"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// edit changes a lease of a test.
type edit func(*v1alpha1.IPLease)

func leaseOf(name string, version int, state v1alpha1.LeaseState, node string, edits ...edit) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", ResourceVersion: strconv.Itoa(version)},
		Spec:       v1alpha1.IPLeaseSpec{State: state, NodeName: node},
	}
	for _, e := range edits {
		e(l)
	}
	return l
}

func takenFrom(node string) edit {
	return func(l *v1alpha1.IPLease) { l.Spec.Previous = &v1alpha1.PreviousHolder{Node: node} }
}

func forced(l *v1alpha1.IPLease) {
	l.Annotations = map[string]string{v1alpha1.AnnotationForceDelete: ""}
}

func goingBack(l *v1alpha1.IPLease) {
	l.Annotations = map[string]string{v1alpha1.AnnotationMoveBack: "7"}
}

func recreated(l *v1alpha1.IPLease) { l.UID = "2" }

// TestWhomAChangeOfALeaseTells: what an agent does with its own leases tells nobody.
func TestWhomAChangeOfALeaseTells(t *testing.T) {
	const bound, warm, quarantined, retained = v1alpha1.StateBound, v1alpha1.StateWarm, v1alpha1.StateQuarantined, v1alpha1.StateRetained
	l := func(state v1alpha1.LeaseState, node string, edits ...edit) *v1alpha1.IPLease {
		return leaseOf("a", 1, state, node, edits...)
	}
	reason := func(l *v1alpha1.IPLease) { l.Spec.Reason = v1alpha1.ReasonConflict }
	message := func(l *v1alpha1.IPLease) { l.Spec.Message = "unknown" }
	held := func(l *v1alpha1.IPLease) { l.Spec.Holder = &v1alpha1.Holder{Token: 7} }
	for name, c := range map[string]struct {
		was, now *v1alpha1.IPLease
		note     bool
		// concerned are those of the new lease, or of the one that was deleted.
		concerned []string
		left      string
	}{
		"an ADD binds a free address":                  {nil, l(bound, "n1"), false, nil, ""},
		"an address is made ready":                     {nil, l(warm, "n1"), false, nil, ""},
		"an ADD binds a ready address":                 {l(warm, "n1"), l(bound, "n1", held), false, nil, ""},
		"a token is recorded":                          {l(bound, "n1"), l(bound, "n1", held), false, nil, ""},
		"a DEL":                                        {l(bound, "n1"), nil, false, nil, ""},
		"a ready address is given back":                {l(warm, "n1"), nil, false, nil, ""},
		"a DEL of a StatefulSet's pod":                 {l(bound, "n1"), l(retained, "n1"), false, nil, ""},
		"its next ADD on the same node":                {l(retained, "n1"), l(bound, "n1"), false, nil, ""},
		"its next ADD on another node":                 {l(retained, "n1"), l(bound, "n2"), false, nil, "n1"},
		"the end of its retention":                     {l(retained, "n1"), nil, false, nil, "n1"},
		"a lease that a person deletes":                {l(bound, "n1", forced), nil, false, nil, "n1"},
		"and one that an ADD creates at once again":    {l(bound, "n1"), l(bound, "n1", recreated), false, nil, "n1"},
		"a lease is taken, without a verifier":         {l(bound, "n1"), l(quarantined, "", takenFrom("n1")), false, []string{"n1"}, "n1"},
		"a lease is taken, for a verifier":             {l(bound, "n1"), l(quarantined, "n2", takenFrom("n1")), false, []string{"n2", "n1"}, "n1"},
		"a conflict at an ADD":                         {l(bound, "n1"), l(quarantined, "n1", reason), false, []string{"n1"}, ""},
		"an edit by a person":                          {l(bound, "n1"), l(bound, "n1", forced, message), false, nil, "n1"},
		"a move asks for its pod":                      {l(bound, "n1"), l(bound, "n1", goingBack), false, nil, "n1"},
		"a note about a pod that was asked for":        {l(bound, "n1", goingBack), l(bound, "n1", goingBack, message), true, nil, ""},
		"a verifier is replaced":                       {l(quarantined, "n2", takenFrom("n1")), l(quarantined, "n3", takenFrom("n1")), false, []string{"n3", "n1"}, "n2"},
		"a verification finds nothing":                 {l(quarantined, "n2", takenFrom("n1")), l(quarantined, "n2", takenFrom("n1"), message), true, []string{"n2", "n1"}, ""},
		"a verification ends it":                       {l(quarantined, "n2", takenFrom("n1")), nil, false, []string{"n2", "n1"}, ""},
		"a take-over that is not proven yet":           {l(quarantined, "n2", takenFrom("n1")), l(bound, "n3", takenFrom("n1")), false, []string{"n1"}, "n2"},
		"a take-over that is proven":                   {l(bound, "n3", takenFrom("n1")), l(bound, "n3"), false, nil, ""},
		"the lease of a node that took it from itself": {l(bound, "n1"), l(quarantined, "n1", takenFrom("n1")), false, []string{"n1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			about := c.now
			if c.now == nil {
				about = c.was
			}
			check.List(t, concerned(about), c.concerned, "the hints that name it are of")
			if c.was == nil {
				return
			}
			check.Equal(t, leaves(c.was, c.now), c.left, "it leaves")
			if c.now != nil {
				check.Equal(t, isNote(c.was, c.now), c.note, "a note:")
			}
		})
	}
}

func versions(all ...string) (list []v1alpha1.LeaseVersion) {
	for i := 0; i < len(all); i += 2 {
		list = append(list, v1alpha1.LeaseVersion{Name: all[i], Version: all[i+1]})
	}
	return list
}

// many are n leases with the versions from first on.
func many(n, first int) (list []v1alpha1.LeaseVersion) {
	for i := range n {
		list = append(list, v1alpha1.LeaseVersion{Name: fmt.Sprintf("l%d", first+i), Version: strconv.Itoa(first + i)})
	}
	return list
}

func TestTheNextHint(t *testing.T) {
	leases := func(all ...*v1alpha1.IPLease) (list []v1alpha1.IPLease) {
		for _, l := range all {
			list = append(list, *l)
		}
		return list
	}
	crowd := func(n int, state v1alpha1.LeaseState) (list []v1alpha1.IPLease) {
		for i := range n {
			list = append(list, *leaseOf(fmt.Sprintf("l%d", i+1), i+1, state, "n1"))
		}
		return list
	}
	const most = v1alpha1.MaxHintLeases
	type status = v1alpha1.LeaseHintStatus
	for name, c := range map[string]struct {
		asks   string
		old    status
		leases []v1alpha1.IPLease
		left   []v1alpha1.LeaseVersion
		want   status
	}{
		"nothing": {},
		"a question is answered with all leases of the node, and no others": {
			"s2", status{Start: "s1", All: true},
			leases(leaseOf("b", 10, v1alpha1.StateBound, "n1"), leaseOf("a", 9, v1alpha1.StateWarm, "n1"), leaseOf("c", 11, v1alpha1.StateBound, "n2", takenFrom("n1"))),
			nil, status{Start: "s2", Leases: versions("a", "9", "b", "10"), Changed: versions("c", "11")},
		},
		"a node without leases is answered":  {"s2", status{Start: "s1"}, nil, nil, status{Start: "s2"}},
		"an answer stays as it is":           {"s1", status{Start: "s1"}, crowd(2, v1alpha1.StateBound), nil, status{Start: "s1"}},
		"as many leases as a hint can name":  {"s2", status{}, crowd(most, v1alpha1.StateBound), nil, status{Start: "s2", Leases: many(most, 1)}},
		"more leases than a hint can name":   {"s2", status{}, crowd(most+1, v1alpha1.StateBound), nil, status{Start: "s2", All: true}},
		"the oldest of too many quarantined": {"", status{}, crowd(most+1, v1alpha1.StateQuarantined), nil, status{Changed: many(most, 1)}},
		"conflicts are left out first": {"", status{},
			append(crowd(most, v1alpha1.StateQuarantined), *leaseOf("taken", most+1, v1alpha1.StateQuarantined, "n1", takenFrom("n2"))), nil,
			status{Changed: append(versions("taken", strconv.Itoa(most+1)), many(most-1, 1)...)}},
		"a quarantine that ended is named no longer": {
			"", status{Changed: versions("a", "1")}, leases(leaseOf("a", 2, v1alpha1.StateBound, "n1")), nil, status{},
		},
		"leases that left follow those before": {"", status{Left: versions("a", "1", "b", "2")}, nil, versions("c", "3", "a", "4"), status{Left: versions("b", "2", "c", "3", "a", "4")}},
		"the oldest that left are forgotten":   {"", status{Left: many(v1alpha1.MaxHintLeft, 1)}, nil, many(2, 100), status{Left: append(many(v1alpha1.MaxHintLeft-2, 3), many(2, 100)...)}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &v1alpha1.LeaseHint{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1alpha1.LeaseHintSpec{Start: c.asks}, Status: c.old}
			got := Next(h, "leader", c.leases, c.left)
			check.Equal(t, got.Start, c.want.Start, "start")
			check.Equal(t, got.Leader, "leader", "leader")
			check.Equal(t, got.All, c.want.All, "all")
			check.List(t, got.Leases, c.want.Leases, "leases")
			check.List(t, got.Changed, c.want.Changed, "changed")
			check.List(t, got.Left, c.want.Left, "left")
		})
	}
}
