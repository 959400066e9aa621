// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"slices"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func at(revision int, node string) *v1alpha1.IPLease {
	return &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: strconv.Itoa(revision)}, Spec: v1alpha1.IPLeaseSpec{NodeName: node},
	}
}

// TestAnOvertakenAnswerChangesNothing: answers may arrive in another order than they were given.
func TestAnOvertakenAnswerChangesNothing(t *testing.T) {
	saw := func(revision int, node string) func(*View) { return func(v *View) { v.Saw(at(revision, node)) } }
	gone := func(revision uint64) func(*View) { return func(v *View) { v.Gone("a", revision) } }
	forget, doubt := func(v *View) { v.Forget() }, func(v *View) { v.Doubt() }
	for name, c := range map[string]struct {
		answers []func(*View)
		want    int // the revision of the lease, or 0: there is none
		told    []string
	}{
		"a lease":                                    {[]func(*View){saw(5, "n1")}, 5, []string{"0 5"}},
		"a lease of another node":                    {[]func(*View){saw(5, "n2")}, 0, nil},
		"a write":                                    {[]func(*View){saw(5, "n1"), saw(6, "n1")}, 6, []string{"0 5", "5 6"}},
		"a read that a write has overtaken":          {[]func(*View){saw(6, "n1"), saw(5, "n1")}, 6, []string{"0 6"}},
		"the same again":                             {[]func(*View){saw(6, "n1"), saw(6, "n1")}, 6, []string{"0 6"}},
		"another node has it":                        {[]func(*View){saw(5, "n1"), saw(6, "n2")}, 0, []string{"0 5", "5 0"}},
		"a read from before another node had it":     {[]func(*View){saw(6, "n2"), saw(5, "n1")}, 0, nil},
		"a DEL":                                      {[]func(*View){saw(5, "n1"), gone(5)}, 0, []string{"0 5", "5 0"}},
		"a DEL of what only a list has shown":        {[]func(*View){saw(5, "n1"), gone(7)}, 0, []string{"0 5", "5 0"}},
		"a read that a DEL has overtaken":            {[]func(*View){saw(5, "n1"), gone(7), saw(6, "n1")}, 0, []string{"0 5", "5 0"}},
		"a new lease after a DEL":                    {[]func(*View){saw(5, "n1"), gone(5), saw(8, "n1")}, 8, []string{"0 5", "5 0", "0 8"}},
		"no lease, read before the ADD":              {[]func(*View){saw(5, "n1"), gone(0)}, 5, []string{"0 5"}},
		"no lease, read before a write":              {[]func(*View){saw(5, "n1"), saw(6, "n1"), gone(5)}, 6, []string{"0 5", "5 6"}},
		"a revision is remembered for a question":    {[]func(*View){saw(5, "n1"), gone(5), forget, saw(4, "n1")}, 0, []string{"0 5", "5 0"}},
		"that of a lease for ever":                   {[]func(*View){saw(5, "n1"), forget, forget, forget, saw(4, "n1")}, 5, []string{"0 5"}},
		"an older write that a restore brought back": {[]func(*View){saw(9, "n1"), doubt, saw(5, "n1")}, 5, []string{"0 9", "9 5"}},
		"the same as before a doubt":                 {[]func(*View){saw(9, "n1"), doubt, saw(9, "n1")}, 9, []string{"0 9"}},
		"none that a restore brought back":           {[]func(*View){saw(9, "n1"), doubt, gone(0)}, 0, []string{"0 9", "9 0"}},
		"a read that a write after it has overtaken": {[]func(*View){saw(9, "n1"), doubt, saw(8, "n1"), gone(0)}, 8, []string{"0 9", "9 8"}},
		"but none of one that is gone":               {[]func(*View){saw(5, "n1"), gone(5), forget, forget, saw(4, "n1")}, 4, []string{"0 5", "5 0", "0 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := NewView("n1")
			v.Fill()
			var told []string
			version := func(l *v1alpha1.IPLease) string {
				if l == nil {
					return "0"
				}
				return l.ResourceVersion
			}
			v.Tell(func(was, now *v1alpha1.IPLease) { told = append(told, version(was)+" "+version(now)) })
			for _, answer := range c.answers {
				answer(v)
			}
			got, err := v.Get("a")
			switch {
			case c.want == 0 && !apierrors.IsNotFound(err):
				t.Errorf("got %v, %v", got, err)
			case c.want != 0 && (err != nil || got.ResourceVersion != strconv.Itoa(c.want)):
				t.Errorf("got %v, %v, want revision %d", got, err, c.want)
			}
			check.List(t, told, c.told, "told")
		})
	}
}

// TestWhatIsAbsentIsUnknownUntilAllIsRead: recovery concludes from absence.
func TestWhatIsAbsentIsUnknownUntilAllIsRead(t *testing.T) {
	v := NewView("n1")
	v.Saw(at(5, "n1"))
	_, err := v.Get("b")
	check.That(t, IsUnavailable(err), "another lease: %v", err)
	_, err = v.All()
	check.That(t, IsUnavailable(err), "all leases: %v", err)
	check.OK(t, check.Err(v.Get("a")))
	v.Fill()
	_, err = v.Get("b")
	check.That(t, apierrors.IsNotFound(err), "then another lease: %v", err)
	check.Equal(t, len(check.Value(v.All())(t)), 1, "then all leases are")
}

func TestWhoListensLateIsToldOfAllLeases(t *testing.T) {
	v := NewView("n1")
	v.Saw(at(5, "n1"))
	var told []string
	v.Tell(func(was, now *v1alpha1.IPLease) {
		check.That(t, was == nil, "it was %v", was)
		told = append(told, now.Name)
	})
	check.That(t, slices.Equal(told, []string{"a"}), "told %v", told)
}

// TestALeaseOfTheViewBelongsToItsReader: the caller of a write changes its own.
func TestALeaseOfTheViewBelongsToItsReader(t *testing.T) {
	v := NewView("n1")
	v.Fill()
	l := at(5, "n1")
	l.Spec.Holder = &v1alpha1.Holder{Pod: "web"}
	v.Saw(l)
	l.Spec.Holder.Pod = "other"
	check.Value(v.Get("a"))(t).Spec.Holder.Pod = "other"
	check.Value(v.All())(t)[0].Spec.Holder.Pod = "other"
	check.Equal(t, check.Value(v.Get("a"))(t).Spec.Holder.Pod, "web", "the view has the pod")
}
