// SPDX-License-Identifier: Apache-2.0

package cniserver

import "github.com/prometheus/client_golang/prometheus"

// newDurations returns the histogram of the time that a call spends in the agent, including the
// wait for earlier calls of its attachment. An ADD from a Warm lease takes some 5 ms, an ADD with
// probes some 200 ms, and 110 s is the deadline of an ADD that waits for a full pool.
func newDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fenceline_cni_duration_seconds",
		Help: "Time that the agent spent on a call of the CNI plugin, by verb and result.",
		Buckets: []float64{
			.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60, 120,
		},
	}, []string{"verb", "result"})
}
