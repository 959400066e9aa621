// SPDX-License-Identifier: Apache-2.0

//go:build bench

package allocate

import (
	"fmt"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/figure"
)

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
		for i := range figure.Size(500, 10) {
			start := time.Now()
			r := check.Value(rawCreate(b.Context(), n))(b)
			raw = append(raw, time.Since(start))

			start = time.Now()
			l := check.Value(n.allocate(b.Context(), fmt.Sprintf("c%d", i), pool))(b)
			allocated = append(allocated, time.Since(start))
			remove(b, n, r, l) // only then is there room, and it does not count
		}
	}
	for _, p := range []int{50, 99} {
		r, a := figure.Percentile(raw, p), figure.Percentile(allocated, p)
		b.ReportMetric(float64(a.Microseconds()), fmt.Sprintf("p%d-µs", p))
		b.ReportMetric(float64(r.Microseconds()), fmt.Sprintf("p%d-raw-µs", p))
		figure.Report(b, fmt.Sprintf("one allocation, p%d", p), float64(a)/float64(r), "× raw create")
	}
	b.ReportMetric(0, "ns/op")
}
