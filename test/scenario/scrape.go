// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fenceline/fenceline/test/cluster"
)

// Ports of the metrics on a node, as the chart sets them.
const (
	agentMetrics      = 9474
	controllerMetrics = 9475
)

// metrics are the metrics of one process at the time of a scrape.
type metrics map[string]*dto.MetricFamily

// scrape reads metrics over HTTP, as Prometheus would.
func scrape(ctx context.Context, node *cluster.Node, port uint16) metrics {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	url := fmt.Sprintf("http://%s/metrics", netip.AddrPortFrom(node.Config.Addresses[0], port))
	response, err := http.DefaultClient.Do(value(http.NewRequestWithContext(ctx, http.MethodGet, url, nil)))
	did(err, "scrape")
	defer response.Body.Close()
	must(response.StatusCode == http.StatusOK, "scrape %s: %s", url, response.Status)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	did(err, "scrape %s", url)
	return families
}

// sum adds up the series of a counter or gauge, or the counts of a histogram,
// that have all the labels, and counts these series.
func (m metrics) sum(name string, labels map[string]string) (value float64, series int) {
	family, ok := m[name]
	if !ok {
		return 0, 0
	}
	for _, metric := range family.Metric {
		if !hasLabels(metric, labels) {
			continue
		}
		series++
		switch {
		case metric.Counter != nil:
			value += metric.Counter.GetValue()
		case metric.Gauge != nil:
			value += metric.Gauge.GetValue()
		case metric.Histogram != nil:
			value += float64(metric.Histogram.GetSampleCount())
		}
	}
	return value, series
}

func hasLabels(metric *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, pair := range metric.Label {
		want, ok := labels[pair.GetName()]
		if ok && want != pair.GetValue() {
			return false
		}
		if ok {
			found++
		}
	}
	return found == len(labels)
}

// agents adds a value up over the agents of some nodes.
func agents(ctx context.Context, nodes []*cluster.Node, name string, labels map[string]string) (sum float64) {
	for _, n := range nodes {
		count, _ := scrape(ctx, n, agentMetrics).sum(name, labels)
		sum += count
	}
	return sum
}
