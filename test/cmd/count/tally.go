// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

// counts are the numbers of tests of a suite, or of all suites.
type counts struct {
	Passed, Failed int
}

// account is the file of a suite in the ledger. Reasons are what its failed tests reported: the total repeats
// them, because the logs of agents push them far away from the end of the output.
type account struct {
	counts
	Reasons []string `json:",omitempty"`
}

func (c counts) String() string { return fmt.Sprintf("%d passed, %d failed", c.Passed, c.Failed) }

func (c counts) verdict() error {
	if c.Failed > 0 {
		return errFailed
	}
	return nil
}

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// slowTests is the number of tests whose time is printed.
const slowTests = 8

// testID is one test of one package; Test is empty for the package itself.
type testID struct{ Package, Test string }

// tallier follows the tests of a suite.
type tallier struct {
	out     io.Writer
	show    bool              // print everything
	note    func(line string) // takes each line of output
	counts  counts
	output  map[testID][]string
	running map[testID]bool // tests whose end has not been reported
	parents map[testID]bool // tests that have subtests
	failed  map[string]bool // packages in which a test has failed
	tests   []event         // tests that are no subtests, and have ended
	reasons []string        // what the failed tests reported
}

// tally reads `go test -json` to its end. It prints a line for each package, and the output of each test that
// failed or was skipped. With show it prints all output as it comes. Each line of output also goes to note.
// It returns what the failed tests reported too.
func tally(stream io.Reader, out io.Writer, show bool, note func(line string)) (counts, []string, error) {
	t := &tallier{
		out: out, show: show, note: note, output: map[testID][]string{},
		running: map[testID]bool{}, parents: map[testID]bool{}, failed: map[string]bool{},
	}
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			t.line(line)
		}
		if err == io.EOF {
			t.slowest()
			return t.counts, t.reasons, nil
		}
		if err != nil {
			return t.counts, t.reasons, err
		}
	}
}

// slowest prints the tests that took longest, so that a suite that grows shows where.
func (t *tallier) slowest() {
	slices.SortStableFunc(t.tests, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for i, e := range t.tests {
		if i == slowTests || e.Elapsed < 5 {
			break
		}
		fmt.Fprintf(t.out, "slow %s %.0fs\n", e.Test, e.Elapsed)
	}
}

func (t *tallier) line(line []byte) {
	var e event
	if line[0] != '{' || json.Unmarshal(line, &e) != nil {
		fmt.Fprintf(t.out, "%s", line) // not an event, but a message of the go command
		return
	}
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "run":
		t.running[id] = true
		if parent, ok := cutLast(e.Test); ok {
			t.parents[testID{e.Package, parent}] = true
		}
	case "output":
		t.note(e.Output)
		if t.show {
			if !strings.HasPrefix(e.Output, "=== ") { // the start of a test; its end is printed
				fmt.Fprint(t.out, e.Output)
			}
			return
		}
		t.output[id] = append(t.output[id], e.Output)
	case "build-output":
		fmt.Fprint(t.out, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.endPackage(e)
		} else {
			if _, sub := cutLast(e.Test); !sub {
				t.tests = append(t.tests, e)
			}
			t.endTest(id, e.Action)
		}
		delete(t.output, id)
		delete(t.running, id)
	}
}

// endTest counts a test without subtests. A test with subtests does not count, unless it failed
// although all its subtests passed. Its output is printed, because it may hold the reason.
func (t *tallier) endTest(id testID, action string) {
	if action == "pass" {
		if !t.parents[id] {
			t.counts.Passed++
		}
		return
	}
	if !t.parents[id] || !t.failed[id.Package+" "+id.Test] {
		t.counts.Failed++
	}
	for name := id.Test; name != ""; name, _ = cutLast(name) {
		t.failed[id.Package+" "+name] = true
	}
	t.failed[id.Package] = true
	fmt.Fprintf(t.out, "--- %s %s in %s\n%s", strings.ToUpper(action), id.Test, id.Package, strings.Join(t.output[id], ""))
	reasons := slices.DeleteFunc(slices.Clone(t.output[id]), func(line string) bool { return !reported.MatchString(line) })
	for _, line := range reasons[max(0, len(reasons)-maxReasons):] {
		t.reasons = append(t.reasons, fmt.Sprintf("%s: %.300s", id.Test, strings.TrimSpace(line)))
	}
}

// reported matches the first line of what a test logs, or fails with.
var reported = regexp.MustCompile(`^ +\w+\.go:[0-9]+: `)

// maxReasons is the number of such lines of a failed test that the total repeats.
const maxReasons = 12

func (t *tallier) endPackage(e event) {
	elapsed := (time.Duration(e.Elapsed * float64(time.Second))).Round(100 * time.Millisecond)
	switch {
	case e.Action == "fail":
		fmt.Fprintf(t.out, "FAIL %s %s\n", e.Package, elapsed)
		if !t.failed[e.Package] { // a crash or a failed build
			t.counts.Failed++
			fmt.Fprint(t.out, strings.Join(t.output[testID{Package: e.Package}], ""))
			t.unfinished(e.Package)
		}
	case e.Action == "pass":
		t.endBenchmarks(e.Package)
		fmt.Fprintf(t.out, "ok   %s %s\n", e.Package, elapsed)
	}
}

// endBenchmarks counts the benchmarks of a package that passed: `go test -json` reports no end of a
// benchmark that succeeds.
func (t *tallier) endBenchmarks(pkg string) {
	for id := range t.running {
		if id.Package == pkg {
			t.endTest(id, "pass")
			delete(t.running, id)
		}
	}
}

// unfinished prints the output of tests that did not end.
func (t *tallier) unfinished(pkg string) {
	for id, output := range t.output {
		if id.Package == pkg && id.Test != "" {
			fmt.Fprintf(t.out, "--- UNFINISHED %s in %s\n%s", id.Test, pkg, strings.Join(output, ""))
		}
	}
}

// cutLast returns the name of the test that a subtest belongs to.
func cutLast(test string) (parent string, ok bool) {
	i := strings.LastIndexByte(test, '/')
	return test[:max(0, i)], i >= 0
}

// ledger keeps the counts of each suite in a file below dir, for the total. Without a directory it keeps nothing.
type ledger struct{ dir string }

func (l ledger) record(suite string, c counts, reasons []string) (err error) {
	defer must.CatchIn(&err, "record the counts of %s", suite)
	if l.dir == "" {
		return nil
	}
	must.OK(os.MkdirAll(l.dir, 0o755))
	return os.WriteFile(filepath.Join(l.dir, suite+".json"), must.Value(json.Marshal(account{c, reasons})), 0o644)
}

// total adds up the suites. A suite that left no counts did not run to its end, and counts as one failed test.
func (l ledger) total(out io.Writer, suites []string) (sum counts, err error) {
	defer must.CatchIn(&err, "add up the suites")
	must.That(l.dir != "" && len(suites) > 0, "set COUNT_DIR and name the suites")
	for _, suite := range suites {
		data, err := os.ReadFile(filepath.Join(l.dir, suite+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(out, "%s: the suite did not run to its end\n", suite)
			sum.Failed++
			continue
		}
		must.OK(err)
		var c account
		must.Done(json.Unmarshal(data, &c), "decode the counts of %s", suite)
		sum.Passed += c.Passed
		sum.Failed += c.Failed
		for _, reason := range c.Reasons {
			fmt.Fprintf(out, "%s: %s\n", suite, reason)
		}
	}
	return sum, nil
}

// reset makes an empty directory.
func (l ledger) reset() (err error) {
	defer must.CatchIn(&err, "remove the counts of earlier suites")
	if l.dir == "" {
		return nil
	}
	must.OK(os.MkdirAll(l.dir, 0o755))
	for _, file := range must.Value(filepath.Glob(filepath.Join(l.dir, "*.json"))) {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			must.OK(err)
		}
	}
	return nil
}
