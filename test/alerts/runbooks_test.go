// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"regexp"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
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
	check.Must(t, len(want) >= 10, "only %d alerts: %v", len(want), want)
	check.List(t, names(`(?m)^## (.*)$`, "docs", "runbooks.md"), want, "docs/runbooks.md has the sections")
	check.List(t, names("(?m)^\\| `(Fenceline\\w+)` \\| [a-z]+ \\|", "docs", "metrics.md"), want, "docs/metrics.md has the alerts")
	parts := regexp.MustCompile(`(?s)\*\*Meaning\*\*: .*\*\*Users see\*\*: .*\*\*Look at\*\*: .*\*\*Do\*\*: `)
	for _, section := range strings.Split(read(t, "docs", "runbooks.md"), "\n## ")[1:] {
		check.That(t, parts.MatchString(section), "a runbook lacks one of its four parts:\n%s", section)
	}
}
