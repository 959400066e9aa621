// SPDX-License-Identifier: Apache-2.0

// Package scrape reads the metrics of a process over HTTP, as Prometheus does.
package scrape

import (
	"context"
	"io"
	"net"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fenceline/fenceline/test/must"
)

// Metrics are those of one process at the time of a scrape.
type Metrics map[string]*dto.MetricFamily

// Read scrapes a process. dial connects to its address, a host and a port.
func Read(ctx context.Context, address string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (_ Metrics, err error) {
	defer must.CatchIn(&err, "scrape %s", address)
	caller := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	request := must.Value(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil))
	response, err := caller.Do(request)
	must.OK(err)
	defer response.Body.Close()
	must.That(response.StatusCode == http.StatusOK, "%s", response.Status)
	return Parse(response.Body)
}

// Parse reads the text format.
func Parse(text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// Sum adds up the series of a counter or gauge, or the counts of a histogram, that have all the labels.
// It also counts these series.
func (m Metrics) Sum(name string, labels map[string]string) (value float64, series int) {
	for _, metric := range m[name].GetMetric() {
		met := 0
		for _, l := range metric.GetLabel() {
			if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
				met++
			}
		}
		if met == len(labels) {
			series++
			value += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return value, series
}
