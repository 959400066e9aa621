// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

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
