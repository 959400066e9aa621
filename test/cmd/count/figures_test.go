// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// benched runs close on the lines of a benchmark, and returns the counts and what was printed.
func benched(t *testing.T, f *figures, c counts, lines ...string) (counts, string) {
	t.Helper()
	for _, line := range lines {
		f.note(line)
	}
	var out strings.Builder
	check.OK(t, f.close(&out, &c))
	return c, out.String()
}

func TestFiguresAreComparedWithTheRecordedRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.md")
	all := []figure.Figure{{Name: "ADD", Value: 2, Unit: "× write", Goal: figure.AtMost(3)}, {Name: "rate", Value: 500, Unit: "a second", Goal: figure.AtLeast(600)}}
	c, _ := benched(t, &figures{file: file, record: true}, counts{Passed: 1}, all[0].String()+"\n", "noise\n", all[1].String()+"\n")
	check.That(t, c.Failed <= 0, "the recorded run: %v", c)
	page := string(check.Value(os.ReadFile(file))(t))
	got := recorded(page)
	check.That(t, slices.Equal(got, all), "recorded %+v in\n%s", got, page)
	for _, row := range []struct {
		name    string
		brief   bool
		value   float64
		printed []string
		missed  bool
	}{
		{"a figure that became worse, and misses its goal", false, 4, []string{"4 × write", "at most 3", "2 × write", "+100 %"}, true},
		{"one that became better", false, 1, []string{"-50 %"}, false},
		{"a small benchmark misses no goal", true, 4, []string{"+100 %"}, false},
	} {
		f := &figures{file: file, brief: row.brief}
		c, text := benched(t, f, counts{Passed: 1}, figure.Figure{Name: "ADD", Value: row.value, Unit: "× write", Goal: all[0].Goal}.String(), figure.Figure{Name: "rate", Value: 700, Unit: "a second"}.String())
		for _, want := range row.printed {
			check.That(t, strings.Contains(text, want), "%s: %q is not in\n%s", row.name, want, text)
		}
		check.That(t, c.Failed <= 0 && strings.Contains(text, "MISSED") == row.missed, "%s: %v\n%s", row.name, c, text)
	}
}

func TestARecordedFigureThatNobodyReportsHasFailed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.md")
	benched(t, &figures{file: file, record: true}, counts{}, "figure: ADD = 2 ms", "figure: DEL = 1 ms")
	c, text := benched(t, &figures{file: file}, counts{Passed: 2}, "figure: ADD = 2 ms")
	check.That(t, c == (counts{2, 1}) && strings.Contains(text, `"DEL"`), "%v\n%s", c, text)
}

func TestARunThatFailedIsNotRecorded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.md")
	_, text := benched(t, &figures{file: file, record: true}, counts{Failed: 1}, "figure: ADD = 2 ms")
	_, err := os.Stat(file)
	check.That(t, err != nil && strings.Contains(text, "stays as it is"), "it was recorded: %v\n%s", err, text)
}
