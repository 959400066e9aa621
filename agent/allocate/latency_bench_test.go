// SPDX-License-Identifier: Apache-2.0

//go:build bench

package allocate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// pairs is how many raw creates, and as many allocations, BenchmarkLatency compares.
const pairs = 500

// BenchmarkLatency measures one allocation at a time, in turns with raw
// creates of a lease by the same API server, so that the ratios of allocation
// to raw create stand whatever the machine. Nothing waits for probes.
func BenchmarkLatency(b *testing.B) {
	server := controlplane.New(b)
	n := newNode(b, server.Admin(), ipam.Share{})
	pool := wide(b, 0)
	warmUp(b, n)
	var raw, allocated []time.Duration
	for b.Loop() {
		for i := range pairs {
			start := time.Now()
			r := check.Value(rawCreate(b.Context(), n))(b)
			raw = append(raw, time.Since(start))

			start = time.Now()
			l := check.Value(n.allocate(b.Context(), fmt.Sprintf("c%d", i), pool))(b)
			allocated = append(allocated, time.Since(start))
			remove(b, n, r, l) // only then is there room, and it does not count
		}
	}
	slices.Sort(raw)
	slices.Sort(allocated)
	for name, p := range map[string]int{"p50": 50, "p99": 99} {
		r, a := raw[(len(raw)-1)*p/100], allocated[(len(allocated)-1)*p/100]
		b.ReportMetric(float64(a.Microseconds()), name+"-µs")
		b.ReportMetric(float64(r.Microseconds()), name+"-raw-µs")
		b.ReportMetric(float64(a)/float64(r), name+"-ratio")
	}
	b.ReportMetric(0, "ns/op")
}
