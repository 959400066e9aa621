// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/must"
)

// metricsAddress is the address of the agent's metrics in the node's namespace.
const metricsAddress = "127.0.0.1:9474"

// Stock returns the Warm leases of a pool that this node alone serves.
func (n *Node) Stock(ctx context.Context, pool string) ([]v1alpha1.IPLease, error) {
	leases := &v1alpha1.IPLeaseList{}
	err := n.cluster.List(ctx, leases, client.MatchingFields{"spec.pool": pool, "spec.state": string(v1alpha1.StateWarm)})
	return leases.Items, err
}

// Ready counts the Warm leases of a pool whose addresses the agent has proven.
func (n *Node) Ready(ctx context.Context, pool string) (int, error) {
	ready, err := n.Sum(ctx, "fenceline_warm_leases", map[string]string{"pool": pool, "condition": "ready"})
	return int(ready), err
}

// Sum adds up the series of a counter or gauge of the agent that have all the labels.
func (n *Node) Sum(ctx context.Context, name string, labels map[string]string) (float64, error) {
	families, err := n.metrics(ctx)
	sum := 0.0
	for _, m := range with(families[name], labels) {
		sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return sum, err
}

// Exhausted counts the ADDs that found every pool full.
func (n *Node) Exhausted(ctx context.Context) (uint64, error) {
	families, err := n.metrics(ctx)
	if err != nil {
		return 0, err
	}
	var count uint64
	for _, m := range with(families["fenceline_cni_duration_seconds"], map[string]string{"verb": "ADD", "result": "exhausted"}) {
		count += m.GetHistogram().GetSampleCount()
	}
	return count, nil
}

// with returns the metrics of a family that have these labels.
func with(family *dto.MetricFamily, labels map[string]string) (found []*dto.Metric) {
	for _, m := range family.GetMetric() {
		met := 0
		for _, l := range m.GetLabel() {
			if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
				met++
			}
		}
		if met == len(labels) {
			found = append(found, m)
		}
	}
	return found
}

// KeyRevision returns the revision of the Secret whose claim keys the agent uses.
func (n *Node) KeyRevision(ctx context.Context) (uint64, error) {
	families, err := n.metrics(ctx)
	if err != nil {
		return 0, err
	}
	for _, m := range families["fenceline_claim_key_revision"].GetMetric() {
		return uint64(m.GetGauge().GetValue()), nil
	}
	return 0, fmt.Errorf("the agent of %s reports no revision of the claim key", n.Name)
}

// metrics reads those of the agent.
func (n *Node) metrics(ctx context.Context) (_ map[string]*dto.MetricFamily, err error) {
	defer must.CatchIn(&err, "read the metrics of the agent of %s", n.Name)
	caller := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.dial}}
	request := must.Value(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", nil))
	response, err := caller.Do(request)
	must.OK(err)
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}

// MetricsProxy serves the metrics of the agent outside of the node's namespace.
func (n *Node) MetricsProxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: metricsAddress}) },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.dial},
	}
}

// dial connects to a server in the node's namespace.
func (n *Node) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.Do(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}
