// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/agent/cniserver"
	"github.com/fenceline/fenceline/agent/guards/sources"
	agentmetrics "github.com/fenceline/fenceline/agent/metrics"
	"github.com/fenceline/fenceline/agent/segment"
	controllermetrics "github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/internal/metricsendpoint"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// described is a registry that remembers what its collectors can export: name to labels.
type described map[string]string

func (d described) Register(c prometheus.Collector) error {
	d.note(c)
	return nil
}

func (d described) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		d.note(c)
	}
}

func (d described) Unregister(prometheus.Collector) bool { return false }

// note reads a description by its text, the only way that the library offers.
func (d described) note(c prometheus.Collector) {
	text := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	descriptions := make(chan *prometheus.Desc)
	go func() {
		c.Describe(descriptions)
		close(descriptions)
	}()
	for desc := range descriptions {
		if m := text.FindStringSubmatch(desc.String()); m != nil {
			d[m[1]] = m[2]
		}
	}
}

func exported(t *testing.T) described {
	t.Helper()
	all := described{}
	agentmetrics.New(all)
	all.MustRegister(segment.New(segment.Config{}).Collector(nil, nil), sources.New(sources.Options{}), metricsendpoint.BuildInfo(),
		agentmetrics.TCX(func() bool { return true }), agentmetrics.SocketGuard(func() bool { return true }),
		agentmetrics.HintUnanswered(nil), agentmetrics.LateSpeakers())
	all.MustRegister(agentmetrics.Moves(nil)...)
	if _, err := cniserver.New(cniserver.Options{Metrics: all}); err != nil {
		t.Fatal(err)
	}
	controllermetrics.New(all)
	return all
}

func TestEveryMetricIsDocumentedWithItsLabels(t *testing.T) {
	all := exported(t)
	text := read(t, "docs", "metrics.md")
	documented := described{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(fenceline_[a-z_]+)` \\| [a-z]+ \\|([^|]*)\\|").FindAllStringSubmatch(text, -1) {
		documented[row[1]] = strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(row[2]), "`", ""), " ", "")
	}
	check.Must(t, len(all) >= 15, "only %d metrics are exported: %v", len(all), all)
	check.That(t, maps.Equal(all, documented), "exported:   %v\ndocumented: %v", all, documented)
}

func TestAlertsAndDashboardsUseMetricsThatExist(t *testing.T) {
	all := exported(t)
	for _, file := range []string{"alerts.yaml", "dashboards/pools.json", "dashboards/conflicts.json"} {
		names := regexp.MustCompile(`fenceline_[a-z_]+`).FindAllString(read(t, "charts", "fenceline", "files", file), -1)
		check.Must(t, len(names) >= 10, "%s names only the metrics %v", file, names)
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			_, ok := all[name]
			for _, suffix := range []string{"_bucket", "_count"} { // of a histogram
				_, histogram := all[strings.TrimSuffix(name, suffix)]
				ok = ok || histogram
			}
			check.That(t, ok, "%s uses %s, which no process exports", file, name)
		}
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	root := check.Value(thirdparty.Root())(t)
	data := check.Value(os.ReadFile(filepath.Join(append([]string{root}, path...)...)))(t)
	return string(data)
}

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
