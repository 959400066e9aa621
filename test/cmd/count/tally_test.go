// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// stream is what go test -json prints about a package, of events "ACTION TEST OUTPUT".
func stream(events ...string) string {
	var lines strings.Builder
	for _, e := range events {
		action, test, _ := strings.Cut(e, " ")
		test, output, _ := strings.Cut(test, " ")
		fmt.Fprintf(&lines, "{\"Action\":%q,\"Package\":\"p\",\"Test\":%q,\"Output\":%q}\n", action, test, output+"\n")
	}
	return lines.String()
}

func TestTally(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stream  string
		want    counts
		printed string // part of what is printed
		hidden  string // not printed
	}{
		{
			"passed and failed tests are counted, and only the failed one's output is printed",
			stream("run TestA", "output TestA quiet", "pass TestA", "run TestB", "output TestB the reason", "fail TestB", "fail"), counts{1, 1}, "the reason", "quiet",
		},
		{
			"a table counts as its rows",
			stream("run TestT", "run TestT/one", "pass TestT/one", "run TestT/two", "fail TestT/two", "fail TestT", "fail"), counts{1, 1}, "TestT/two", "",
		},
		{
			"a table that fails beside its rows is a failure",
			stream("run TestT", "run TestT/one", "pass TestT/one", "fail TestT", "fail"), counts{1, 1}, "FAIL TestT", "",
		},
		{"a skipped test is a failure", stream("run TestS", "output TestS no root", "skip TestS", "pass"), counts{0, 1}, "no root", ""},
		{"a package that does not build is a failure and its compiler is heard", `{"ImportPath":"p","Action":"build-output","Output":"undefined: x\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","Elapsed":0,"FailedBuild":"p"}`, counts{0, 1}, "undefined: x", ""},
		{"a crash is a failure and shows what was under way", stream("run TestHang", "output TestHang panic: timed out", "fail"), counts{0, 1}, "panic: timed out", ""},
		{"a benchmark has passed when its package has", stream("run BenchmarkB", "run BenchmarkB/sub", "pass"), counts{1, 0}, "", ""},
		{"a package without tests counts nothing", stream("skip"), counts{0, 0}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			got, _, err := tally(strings.NewReader(tc.stream+"\n"), &out, false, func(string) {})
			check.That(t, err == nil && got == tc.want, "got %v, %v; want %v", got, err, tc.want)
			check.That(t, strings.Contains(out.String(), tc.printed), "%q is not in what was printed:\n%s", tc.printed, out.String())
			check.That(t, tc.hidden == "" || !strings.Contains(out.String(), tc.hidden), "%q was printed", tc.hidden)
		})
	}
}

func TestTheTotalMissesNoSuite(t *testing.T) {
	l := ledger{dir: t.TempDir()}
	_, reasons, err := tally(strings.NewReader(stream("run TestB", "output TestB     b_test.go:7: the reason", "output TestB a log", "fail TestB", "fail")), new(strings.Builder), false, func(string) {})
	check.OK(t, errors.Join(err, l.record("unit", counts{Passed: 5}, nil), l.record("kernel", counts{Passed: 2, Failed: 1}, reasons)))
	for name, tc := range map[string]struct {
		suites  []string
		want    counts
		printed string
	}{
		"suites are added up":                              {[]string{"unit", "kernel"}, counts{7, 1}, "kernel: TestB: b_test.go:7: the reason\n"},
		"a suite that was not named does not count":        {[]string{"unit"}, counts{5, 0}, ""},
		"a suite that did not run to its end is a failure": {[]string{"unit", "api"}, counts{5, 1}, "api: "},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			got, err := l.total(&out, tc.suites)
			check.That(t, err == nil && got == tc.want && strings.HasPrefix(out.String(), tc.printed), "got %v, %v, printed %q", got, err, out.String())
		})
	}
	check.OK(t, l.reset())
	got, err := l.total(new(strings.Builder), []string{"unit"})
	check.That(t, err == nil && got == (counts{0, 1}), "after a reset: %v, %v", got, err)
}

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

// files makes a directory with these files.
func files(t *testing.T, texts map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range texts {
		path := filepath.Join(root, name)
		check.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check.OK(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

func TestTaggedFindsOnlyTestsThatNeedTheTag(t *testing.T) {
	root := files(t, map[string]string{
		"go.mod":               "module m\n\ngo 1.26\n",
		"a/plain_test.go":      "package a\n\nimport \"testing\"\n\nfunc TestPlain(t *testing.T) {}\n",
		"a/kernel_test.go":     "//go:build linux && kernel\n\npackage a\n\nfunc TestKernel(t *testing.T) {}\nfunc TestMain(m *testing.M) {}\nfunc helper() {}\n",
		"b/api_test.go":        "//go:build api\n\npackage b\n\nfunc TestAPI(t *testing.T) {}\n",
		"b/without_test.go":    "//go:build !kernel\n\npackage b\n\nfunc TestWithout(t *testing.T) {}\n",
		"c/both_test.go":       "//go:build bench && kernel\n\npackage c\n\nfunc TestBoth(t *testing.T) {}\n",
		"c/either_test.go":     "//go:build bench || kernel\n\npackage c\n\nfunc TestEither(t *testing.T) {}\n",
		"other/go.mod":         "module other\n",
		"other/kernel_test.go": "//go:build kernel\n\npackage other\n\nfunc TestOther(t *testing.T) {}\n",
	})
	for _, tc := range []struct {
		tag, with, only string
		packages, names []string
	}{
		{"kernel", "", "", []string{"m/a", "m/c"}, []string{"TestEither", "TestKernel"}},
		{"kernel", "", `m/c\.|\.TestOther`, []string{"m/c"}, []string{"TestEither"}},
		{"bench", "kernel", "", []string{"m/c"}, []string{"TestBoth"}},
	} {
		packages, names, err := tagged(root, tc.tag, tc.with, regexp.MustCompile(tc.only))
		check.OK(t, err)
		check.List(t, packages, tc.packages, "%s with %q:", tc.tag, tc.with)
		check.List(t, names, tc.names, "%s with %q:", tc.tag, tc.with)
	}
}

func TestEveryFuzzTargetRuns(t *testing.T) {
	const head = "package a\n\nimport \"testing\"\n\n"
	root := files(t, map[string]string{
		"go.mod":            "module m\n\ngo 1.26\n",
		"a.go":              "package a\n",
		"quiet_test.go":     head + "func FuzzQuiet(f *testing.F) { f.Fuzz(func(*testing.T, string) {}) }\n",
		"kernel_test.go":    "//go:build kernel\n\n" + head + "func FuzzKernel(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }\n",
		"broken_test.go":    head + "func FuzzBroken(f *testing.F) {\n\tf.Fuzz(func(t *testing.T, n int) {\n\t\tif n > 9 {\n\t\t\tt.Error(n)\n\t\t}\n\t})\n}\n",
		"no_target_test.go": head + "func TestFuzz(t *testing.T) { t.Fatal() }\n",
	})
	for name, tc := range map[string]struct {
		run  string
		want counts
	}{
		"all":      {"", counts{2, 1}},
		"selected": {"Kernel", counts{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			l := ledger{dir: t.TempDir()}
			err := fuzzing{dir: root, each: "1000x", run: tc.run}.execute(&out, l)
			check.That(t, (err != nil) == (tc.want.Failed > 0) && strings.HasSuffix(out.String(), "fuzz: "+tc.want.String()+"\n"), "%v, printed %s", err, &out)
			check.Equal(t, check.Value(l.total(&out, []string{"fuzz"}))(t), tc.want, "total")
		})
	}
}
