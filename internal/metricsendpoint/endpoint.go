// SPDX-License-Identifier: Apache-2.0

// Package metricsendpoint says how a program serves its metrics.
package metricsendpoint

import (
	"crypto/tls"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fenceline/fenceline/internal/access"
	"github.com/fenceline/fenceline/internal/version"
)

// allowedFor is the time for which the answer of the API server for a token counts.
const allowedFor = time.Minute

// Endpoint says where /metrics is served, and to whom.
type Endpoint struct {
	// Address has the form host:port.
	Address string
	// Secure serves TLS, and only to clients whose token may get /metrics (TokenReview and
	// SubjectAccessReview). Otherwise everybody gets the metrics by HTTP.
	Secure bool
	// CertDir holds tls.crt and tls.key, which may change at any time. If it is empty, the program
	// makes a self-signed certificate.
	CertDir string
}

// Options returns the options of the manager's metrics server.
func (e Endpoint) Options() metricsserver.Options {
	o := metricsserver.Options{BindAddress: e.Address}
	if e.Secure {
		o.SecureServing, o.CertDir = true, e.CertDir
		o.FilterProvider = withAuthorization
		o.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }}
	}
	return o
}

// withAuthorization is a metricsserver.Options.FilterProvider.
func withAuthorization(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	judge, err := access.New(config, client, allowedFor)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return judge.Filter(log, func(r *http.Request) []access.Need {
			return []access.Need{{Verb: strings.ToLower(r.Method), Path: r.URL.Path}}
		}, next), nil
	}, nil
}

// BuildInfo returns the metric that says which build a program is.
func BuildInfo() prometheus.Collector {
	release, commit := version.Parts()
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fenceline_build_info",
		Help: "1: the build of this program, by its version, its commit and the Go version that made it.",
	}, []string{"version", "commit", "goversion"})
	g.WithLabelValues(release, commit, runtime.Version()).Set(1)
	return g
}
