// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"fmt"
	"os"
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
		"behind: by hand-over, any pool, insists",
		"kept: by last holder, any pool, insists",
		"offered: by probe, limits, waits, learns",
		"requested Warm: by watch, limits, insists",
		"requested: by probe, limits, insists, waits",
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
		}{{s.insists, "insists"}, {s.waits, "waits"}, {s.skipsSighted, "skips sighted"}, {s.learns, "learns"}} {
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

// docs/design.md tells people about the sources.
func TestTheDesignHasTheTableOfTheSources(t *testing.T) {
	page := string(check.Value(os.ReadFile("../../docs/design.md"))(t))
	_, table, _ := strings.Cut(page, "| source | rules | its write | proof |")
	var got, want []string
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(line, "|")
		if len(cells) < 7 {
			break
		}
		name, _, _ := strings.Cut(strings.TrimSpace(cells[1]), ":")
		got = append(got, fmt.Sprintf("%s: %s; %s", name, strings.TrimSpace(cells[2]), strings.TrimSpace(cells[6])))
	}
	for _, s := range Sources() {
		obeys := [...]string{anyPool: "none", limits: "limits", queue: "limits, queue"}[s.obeys]
		want = append(want, fmt.Sprintf("%s: %s; %s", s.Name, obeys, map[bool]string{true: "the ADD ends", false: "next"}[s.insists]))
	}
	check.Same(t, got, want, "the rows in docs/design.md#add")
}

func TestWhatFollowsATry(t *testing.T) {
	for _, row := range []struct {
		result result
		source Source
		want   next
	}{
		{won, Source{}, answerWith},
		{lost, Source{waits: true, insists: true}, nextCandidate},
		{rejected, Source{}, nextCandidate},
		{rejected, Source{waits: true}, nextCandidate},
		{rejected, Source{insists: true}, giveUp},
		{poolRejected, Source{}, nextCandidate},
		{poolRejected, Source{insists: true}, giveUp},
		{usedUp, Source{}, nextSource},
		{usedUp, Source{waits: true}, giveUp},
		{endOfADD, Source{}, giveUp},
	} {
		check.Equal(t, after(row.result, row.source), row.want, "result %d, %+v:", row.result, row.source)
	}
}

// A source whose proof does not fit its candidates would hand out addresses that nobody has proven.
func TestAProofThatDoesNotFitItsCandidateIsRefused(t *testing.T) {
	write := func(context.Context, *candidate) (*v1alpha1.IPLease, doubt, error) { return nil, doubt{}, nil }
	of := map[string]candidate{"nothing": {}, "write": {write: write}, "last": {last: &v1alpha1.IPLease{}}, "both": {write: write, last: &v1alpha1.IPLease{}}}
	fitting := map[provenBy]string{byProbe: "write", byWatch: "write", byLastHolder: "both", byHandOver: "nothing"}
	for p, want := range fitting {
		for has, c := range of {
			check.Equal(t, p.fits(&c), has == want, "proof %d of a candidate with %s: got", p, has)
		}
	}
}
