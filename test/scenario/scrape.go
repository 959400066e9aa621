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

// metrics are what one process told when it was scraped.
type metrics map[string]*dto.MetricFamily

// scrape reads metrics over HTTP, as Prometheus would.
func scrape(ctx context.Context, node *cluster.Node, port uint16) (metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	url := fmt.Sprintf("http://%s/metrics", netip.AddrPortFrom(node.Config.Addresses[0], port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape %s: %s", url, response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", url, err)
	}
	return families, nil
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
func agents(ctx context.Context, nodes []*cluster.Node, name string, labels map[string]string) (float64, error) {
	var sum float64
	for _, n := range nodes {
		m, err := scrape(ctx, n, agentMetrics)
		if err != nil {
			return 0, err
		}
		value, _ := m.sum(name, labels)
		sum += value
	}
	return sum, nil
}
