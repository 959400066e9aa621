// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEachAlertHasARunbookAndEachRunbookItsAlert(t *testing.T) {
	names := func(pattern string, path ...string) []string {
		var all []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, path...), -1) {
			all = append(all, m[1])
		}
		return all
	}
	want := names(`(?m)^ +- alert: (\w+)$`, "charts", "fenceline", "files", "alerts.yaml")
	if len(want) < 10 {
		t.Fatalf("only %d alerts: %v", len(want), want)
	}
	if got := names(`(?m)^## (.*)$`, "docs", "runbooks.md"); !slices.Equal(got, want) {
		t.Errorf("docs/runbooks.md has the sections %q, want %q", got, want)
	}
	if got := names("(?m)^\\| `(Fenceline\\w+)` \\| [a-z]+ \\|", "docs", "metrics.md"); !slices.Equal(got, want) {
		t.Errorf("docs/metrics.md has the alerts %q, want %q", got, want)
	}
	parts := regexp.MustCompile(`(?s)\*\*Meaning\*\*: .*\*\*Users see\*\*: .*\*\*Look at\*\*: .*\*\*Do\*\*: `)
	for _, section := range strings.Split(read(t, "docs", "runbooks.md"), "\n## ")[1:] {
		if !parts.MatchString(section) {
			t.Errorf("a runbook lacks one of its four parts:\n%s", section)
		}
	}
}
