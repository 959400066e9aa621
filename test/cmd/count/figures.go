// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fenceline/fenceline/test/figure"
	"github.com/fenceline/fenceline/test/must"
)

// figures are those of a run of benchmarks, beside those of the recorded run.
type figures struct {
	file   string // of the recorded run; empty: the suite has no figures
	record bool   // make this run the recorded one
	brief  bool   // the benchmarks are small, so their figures say little
	now    []figure.Figure
}

// note takes a figure from a line of the output of a benchmark.
func (f *figures) note(line string) {
	if got, ok := figure.Parse(line); ok {
		f.now = append(f.now, got)
	}
}

// close prints the table, and counts a recorded figure that no benchmark reported as failed. If
// nothing failed, it records the run.
func (f *figures) close(out io.Writer, c *counts) (err error) {
	defer must.Catch(&err)
	if f.file == "" {
		return nil
	}
	text, err := os.ReadFile(f.file)
	must.That(err == nil || f.record && os.IsNotExist(err), "read the recorded figures: %w", err)
	last := recorded(string(text))
	f.print(out, last)
	if !f.record {
		for _, l := range last {
			if _, ok := find(f.now, l.Name); !ok {
				fmt.Fprintf(out, "no benchmark reported the figure %q of %s\n", l.Name, f.file)
				c.Failed++
			}
		}
		return nil
	}
	if c.Failed > 0 {
		fmt.Fprintf(out, "%s stays as it is, because a benchmark failed\n", f.file)
		return nil
	}
	must.Done(os.WriteFile(f.file, []byte(f.page()), 0o644), "record the figures")
	return nil
}

// print compares the figures with those of the last recorded run.
func (f *figures) print(out io.Writer, last []figure.Figure) {
	if f.brief {
		fmt.Fprintln(out, "These are figures of small benchmarks: they show that the benchmarks work.")
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "figure\tnow\tgoal\t\trecorded\tchange")
	for _, now := range f.now {
		verdict, before, change := "", "none", ""
		if !now.Met() && !f.brief {
			verdict = "MISSED"
		}
		if l, ok := find(last, now.Name); ok {
			before = l.Amount()
			if percent := (now.Value/l.Value - 1) * 100; !math.IsNaN(percent) && !math.IsInf(percent, 0) {
				change = fmt.Sprintf("%+.0f %%", percent)
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", now.Name, now.Amount(), now.Goal, verdict, before, change)
	}
	table.Flush()
}

// page is the file of a recorded run.
func (f *figures) page() string {
	var page strings.Builder
	fmt.Fprintf(&page, `# Figures of the benchmarks

`+"`make bench-record`"+` writes this page, and `+"`make bench`"+` compares its figures with it. Each goal
stands in the code of its benchmark. [testing.md](testing.md#benchmarks) says what they measure.

Recorded on %s: Linux %s, %d CPUs, load %s at the end.

| figure | recorded | goal | |
|---|---|---|---|
`, time.Now().UTC().Format(time.DateOnly), release(), runtime.NumCPU(), load())
	for _, now := range f.now {
		verdict := ""
		if !now.Met() {
			verdict = "missed"
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", now.Name, now.Amount(), now.Goal, verdict)
	}
	return page.String()
}

// recorded reads the rows of a page.
func recorded(page string) (all []figure.Figure) {
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		row := fmt.Sprintf("figure: %s = %s", strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]))
		if f, ok := figure.Parse(row); ok {
			f.Goal = figure.Goal(strings.TrimSpace(cells[3]))
			all = append(all, f)
		}
	}
	return all
}

func find(all []figure.Figure, name string) (figure.Figure, bool) {
	i := slices.IndexFunc(all, func(f figure.Figure) bool { return f.Name == name })
	if i < 0 {
		return figure.Figure{}, false
	}
	return all[i], true
}

func release() string {
	out, err := exec.Command("uname", "-r").Output()
	if err != nil {
		return "of unknown release"
	}
	return strings.TrimSpace(string(out))
}

// load is the number of processes that wanted a CPU in the last minute.
func load() string {
	text, err := os.ReadFile(filepath.Join("/proc", "loadavg"))
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
