// SPDX-License-Identifier: Apache-2.0

// Package figure gives the figures of benchmarks one form, in which test/cmd/count collects them.
package figure

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

// Figure is one result of a benchmark, with its goal.
type Figure struct {
	Name  string
	Value float64
	Unit  string
	Goal  Goal
}

// Goal bounds a figure. Its text is empty if there is no goal.
type Goal string

// The words of goals.
const (
	most  = "at most "
	least = "at least "
)

// AtMost is the goal of a figure that is better if it is small.
func AtMost(bound float64) Goal { return Goal(most + number(bound)) }

// AtLeast is the goal of a figure that is better if it is large.
func AtLeast(bound float64) Goal { return Goal(least + number(bound)) }

// met reports whether a value keeps the goal, and an error if the goal has no such form.
func (g Goal) met(value float64) (bool, error) {
	if g == "" {
		return true, nil
	}
	if text, ok := strings.CutPrefix(string(g), most); ok {
		bound, err := strconv.ParseFloat(text, 64)
		return value <= bound, err
	}
	text, ok := strings.CutPrefix(string(g), least)
	if !ok {
		return false, fmt.Errorf("the goal %q begins with neither %q nor %q", g, most, least)
	}
	bound, err := strconv.ParseFloat(text, 64)
	return value >= bound, err
}

// Met reports whether the figure keeps its goal.
func (f Figure) Met() bool {
	met, err := f.Goal.met(f.Value)
	return met && err == nil
}

// Report prints a figure. It prints past the log of the test, because the log of a benchmark is cut
// after ten lines.
func Report(tb testing.TB, name string, value float64, unit string, goal ...Goal) {
	tb.Helper()
	f := Figure{Name: name, Value: value, Unit: unit}
	if len(goal) > 0 {
		f.Goal = goal[0]
	}
	check.That(tb, !math.IsNaN(value) && !math.IsInf(value, 0), "%s is %v: nothing was measured", name, value)
	fmt.Println(f)
}

// Size is the size of a benchmark: full, or brief under -short, which only shows that it works.
func Size(full, brief int) int {
	if testing.Short() {
		return brief
	}
	return full
}

// Median returns the value in the middle.
func Median[T float64 | time.Duration](of []T) T { return Percentile(of, 50) }

// Percentile returns the value that percent of all do not exceed, by the nearest rank.
func Percentile[T float64 | time.Duration](of []T, percent int) T {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

// Milliseconds is the unit of most figures.
func Milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// number has three digits, or all that stand before the point.
func number(v float64) string {
	if math.Abs(v) >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Amount returns the value with its unit.
func (f Figure) Amount() string { return number(f.Value) + " " + f.Unit }

// String is the line of a report. Parse reads it.
func (f Figure) String() string {
	line := "figure: " + f.Name + " = " + f.Amount()
	if f.Goal != "" {
		line += " (goal " + string(f.Goal) + ")"
	}
	return line
}

// Parse reads the line of a report, and reports whether it is one.
func Parse(line string) (Figure, bool) {
	form := regexp.MustCompile(`(?:^|\s)figure: (.+) = (\S+) (.+?)(?: \(goal ([^()]+)\))?\s*$`)
	m := form.FindStringSubmatch(line)
	if m == nil {
		return Figure{}, false
	}
	value, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		return Figure{}, false
	}
	return Figure{Name: m[1], Value: value, Unit: m[3], Goal: Goal(m[4])}, true
}
