// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

func TestAReportedFigureIsReadAgain(t *testing.T) {
	for _, f := range []Figure{
		{"ADD, Warm, p50", 1.33, "× raw update", AtMost(1.3)},
		{"allocations (10 agents)", 2560, "a second", AtLeast(1000)},
		{"agent: memory", 46.1, "MB", ""},
		{"a small one", 0.00123, "ms", ""},
	} {
		for _, line := range []string{f.String(), "BenchmarkX-2  \t" + f.String() + "\n"} {
			got, ok := Parse(line)
			check.That(t, ok && got == f, "%q is read as %+v", line, got)
		}
	}
	for _, line := range []string{"figure: none", "a line", "figure: x = much MB", "configure: x = 1 MB"} {
		got, ok := Parse(line)
		check.That(t, !ok, "%q is read as %+v", line, got)
	}
}

func TestAGoalBoundsAFigure(t *testing.T) {
	for _, c := range []struct {
		value float64
		goal  Goal
		met   bool
	}{
		{1.3, AtMost(1.3), true}, {1.31, AtMost(1.3), false},
		{1000, AtLeast(1000), true}, {999, AtLeast(1000), false},
		{5, "", true}, {5, "about 5", false}, {5, "at most five", false},
	} {
		check.Equal(t, (Figure{Value: c.value, Goal: c.goal}).Met(), c.met, "%v, goal %q: met", c.value, c.goal)
	}
}

func TestPercentilesAreOfTheNearestRank(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i))
	}
	for percent, want := range map[int]time.Duration{0: 1, 50: 50, 99: 99, 100: 100} {
		check.Equal(t, Percentile(all, percent), want, "p%d is", percent)
	}
	check.Equal(t, Median([]float64{7}), 7, "the median of one is")
}
