// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// The order of the sources and their differences are rules: R4 and R8 say when a claim comes before its
// proof, R15 that a target stays fenced.
func TestTheSourcesOfAddressesInTheirOrder(t *testing.T) {
	want := []string{
		"behind: by hand-over, any pool",
		"kept: by last holder, any pool",
		"offered: by probe, limits, final, learns",
		"requested Warm: by watch, limits",
		"requested: by probe, limits",
		"Warm: by watch, limits and queue, learns",
		"free: by probe, limits and queue, skips sighted, learns",
		"sighted: by probe, limits and queue, learns",
		"unready Warm: by watch, limits and queue, learns",
	}
	var got []string
	for _, s := range Sources() {
		traits := []string{
			s.Name + ": " + [...]string{byProbe: "by probe", byWatch: "by watch", byLastHolder: "by last holder", byHandOver: "by hand-over"}[s.proof],
			[...]string{anyPool: "any pool", limits: "limits", queue: "limits and queue"}[s.obeys],
		}
		for _, trait := range []struct {
			has  bool
			name string
		}{{s.final, "final"}, {s.skipsSighted, "skips sighted"}, {s.learns, "learns"}} {
			if trait.has {
				traits = append(traits, trait.name)
			}
		}
		got = append(got, strings.Join(traits, ", "))
	}
	// The pools of a search are only ever reduced.
	check.That(t, slices.IsSortedFunc(Sources(), func(a, b Source) int { return int(a.obeys - b.obeys) }),
		"a source obeys fewer rules than the one before it")
	check.Same(t, got, want, "the sources")
}

func TestWhatFollowsATry(t *testing.T) {
	for _, row := range []struct {
		result result
		source Source
		want   next
	}{
		{won, Source{}, answerWith},
		{notAddress, Source{final: true}, nextCandidate},
		{usedUp, Source{}, nextSource},
		{usedUp, Source{final: true}, giveUp},
		{endOfADD, Source{}, giveUp},
	} {
		check.Equal(t, after(outcome{result: row.result}, row.source), row.want, "result %d, %+v:", row.result, row.source)
	}
}

// A source whose proof does not fit its candidates would hand out addresses that nobody has proven.
func TestAProofThatDoesNotFitItsCandidateIsRefused(t *testing.T) {
	write := func(context.Context, *candidate) (*v1alpha1.IPLease, doubt, error) { return nil, doubt{}, nil }
	of := map[string]candidate{"nothing": {}, "write": {write: write}, "last": {last: &v1alpha1.IPLease{}}, "both": {write: write, last: &v1alpha1.IPLease{}}}
	fitting := map[proof]string{byProbe: "write", byWatch: "write", byLastHolder: "both", byHandOver: "nothing"}
	for p, want := range fitting {
		for has, c := range of {
			check.Equal(t, p.fits(&c), has == want, "proof %d of a candidate with %s: got", p, has)
		}
	}
}
