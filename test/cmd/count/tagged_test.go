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
)

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
