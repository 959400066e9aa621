// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

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
