// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/scrape"
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

// Sum adds up the series of a counter or gauge of the agent, or the counts of a histogram, that have all
// the labels.
func (n *Node) Sum(ctx context.Context, name string, labels map[string]string) (float64, error) {
	metrics, err := scrape.Read(ctx, metricsAddress, n.dial)
	sum, _ := metrics.Sum(name, labels)
	return sum, err
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
