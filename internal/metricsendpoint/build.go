// SPDX-License-Identifier: Apache-2.0

package metricsendpoint

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/internal/version"
)

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
