// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

func TestTally(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stream  string
		want    counts
		printed string // part of what is printed
		hidden  string // not printed
	}{{
		name: "passed and failed tests are counted, and only the failed one's output is printed",
		stream: `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"the reason\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}`,
		want: counts{1, 1}, printed: "the reason", hidden: "quiet",
	}, {
		name: "a table counts as its rows",
		stream: `{"Action":"run","Package":"p","Test":"TestT"}
{"Action":"run","Package":"p","Test":"TestT/one"}
{"Action":"pass","Package":"p","Test":"TestT/one"}
{"Action":"run","Package":"p","Test":"TestT/two"}
{"Action":"fail","Package":"p","Test":"TestT/two"}
{"Action":"fail","Package":"p","Test":"TestT"}
{"Action":"fail","Package":"p"}`,
		want: counts{1, 1}, printed: "TestT/two",
	}, {
		name: "a table that fails beside its rows is a failure",
		stream: `{"Action":"run","Package":"p","Test":"TestT"}
{"Action":"run","Package":"p","Test":"TestT/one"}
{"Action":"pass","Package":"p","Test":"TestT/one"}
{"Action":"fail","Package":"p","Test":"TestT"}
{"Action":"fail","Package":"p"}`,
		want: counts{1, 1}, printed: "FAIL TestT",
	}, {
		name: "a skipped test is a failure",
		stream: `{"Action":"run","Package":"p","Test":"TestS"}
{"Action":"output","Package":"p","Test":"TestS","Output":"no root\n"}
{"Action":"skip","Package":"p","Test":"TestS"}
{"Action":"pass","Package":"p"}`,
		want: counts{0, 1}, printed: "no root",
	}, {
		name: "a package that does not build is a failure and its compiler is heard",
		stream: `{"ImportPath":"p","Action":"build-output","Output":"undefined: x\n"}
{"ImportPath":"p","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","Elapsed":0,"FailedBuild":"p"}`,
		want: counts{0, 1}, printed: "undefined: x",
	}, {
		name: "a crash is a failure and shows what was under way",
		stream: `{"Action":"run","Package":"p","Test":"TestHang"}
{"Action":"output","Package":"p","Test":"TestHang","Output":"panic: timed out\n"}
{"Action":"fail","Package":"p"}`,
		want: counts{0, 1}, printed: "panic: timed out",
	}, {
		name: "a benchmark has passed when its package has",
		stream: `{"Action":"run","Package":"p","Test":"BenchmarkB"}
{"Action":"run","Package":"p","Test":"BenchmarkB/sub"}
{"Action":"pass","Package":"p"}`,
		want: counts{1, 0},
	}, {
		name:   "a package without tests counts nothing",
		stream: `{"Action":"skip","Package":"p"}`,
		want:   counts{0, 0},
	}} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			got, err := tally(strings.NewReader(tc.stream+"\n"), &out, false, func(string) {})
			check.That(t, err == nil && got == tc.want, "got %v, %v; want %v", got, err, tc.want)
			check.That(t, strings.Contains(out.String(), tc.printed), "%q is not in what was printed:\n%s", tc.printed, out.String())
			check.That(t, tc.hidden == "" || !strings.Contains(out.String(), tc.hidden), "%q was printed", tc.hidden)
		})
	}
}

func TestTheTotalMissesNoSuite(t *testing.T) {
	l := ledger{dir: t.TempDir()}
	for suite, c := range map[string]counts{"unit": {Passed: 5}, "kernel": {Passed: 2, Failed: 1}} {
		check.OK(t, l.record(suite, c))
	}
	for name, tc := range map[string]struct {
		suites  []string
		want    counts
		printed string
	}{
		"suites are added up":                              {[]string{"unit", "kernel"}, counts{7, 1}, ""},
		"a suite that was not named does not count":        {[]string{"unit"}, counts{5, 0}, ""},
		"a suite that did not run to its end is a failure": {[]string{"unit", "api"}, counts{5, 1}, "api: "},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			got, err := l.total(&out, tc.suites)
			if err != nil || got != tc.want || !strings.HasPrefix(out.String(), tc.printed) {
				t.Errorf("got %v, %v, printed %q; want %v", got, err, out.String(), tc.want)
			}
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

func TestTaggedFindsOnlyTestsThatNeedTheTag(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":               "module m\n\ngo 1.26\n",
		"a/plain_test.go":      "package a\n\nimport \"testing\"\n\nfunc TestPlain(t *testing.T) {}\n",
		"a/kernel_test.go":     "//go:build linux && kernel\n\npackage a\n\nfunc TestKernel(t *testing.T) {}\nfunc TestMain(m *testing.M) {}\nfunc helper() {}\n",
		"b/api_test.go":        "//go:build api\n\npackage b\n\nfunc TestAPI(t *testing.T) {}\n",
		"b/without_test.go":    "//go:build !kernel\n\npackage b\n\nfunc TestWithout(t *testing.T) {}\n",
		"c/both_test.go":       "//go:build bench && kernel\n\npackage c\n\nfunc TestBoth(t *testing.T) {}\n",
		"c/either_test.go":     "//go:build bench || kernel\n\npackage c\n\nfunc TestEither(t *testing.T) {}\n",
		"other/go.mod":         "module other\n",
		"other/kernel_test.go": "//go:build kernel\n\npackage other\n\nfunc TestOther(t *testing.T) {}\n",
	} {
		path := filepath.Join(root, name)
		check.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check.OK(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for _, tc := range []struct {
		tag, with, only string
		packages, names []string
	}{
		{"kernel", "", "", []string{"m/a", "m/c"}, []string{"TestEither", "TestKernel"}},
		{"kernel", "", `m/c\.|\.TestOther`, []string{"m/c"}, []string{"TestEither"}},
		{"bench", "kernel", "", []string{"m/c"}, []string{"TestBoth"}},
	} {
		packages, names, err := tagged(root, tc.tag, tc.with, regexp.MustCompile(tc.only))
		if err != nil || !slices.Equal(packages, tc.packages) || !slices.Equal(names, tc.names) {
			t.Errorf("%s with %q: got %v, %v, %v", tc.tag, tc.with, packages, names, err)
		}
	}
}

func TestEveryFuzzTargetRuns(t *testing.T) {
	root := t.TempDir()
	const head = "package a\n\nimport \"testing\"\n\n"
	for name, text := range map[string]string{
		"go.mod":            "module m\n\ngo 1.26\n",
		"a.go":              "package a\n",
		"quiet_test.go":     head + "func FuzzQuiet(f *testing.F) { f.Fuzz(func(*testing.T, string) {}) }\n",
		"kernel_test.go":    "//go:build kernel\n\n" + head + "func FuzzKernel(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }\n",
		"broken_test.go":    head + "func FuzzBroken(f *testing.F) {\n\tf.Fuzz(func(t *testing.T, n int) {\n\t\tif n > 9 {\n\t\t\tt.Error(n)\n\t\t}\n\t})\n}\n",
		"no_target_test.go": head + "func TestFuzz(t *testing.T) { t.Fatal() }\n",
	} {
		check.OK(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
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
			if (err != nil) != (tc.want.Failed > 0) || !strings.HasSuffix(out.String(), "fuzz: "+tc.want.String()+"\n") {
				t.Errorf("%v, printed %s", err, &out)
			}
			if sum, err := l.total(&out, []string{"fuzz"}); err != nil || sum != tc.want {
				t.Errorf("total %v, %v", sum, err)
			}
		})
	}
}
