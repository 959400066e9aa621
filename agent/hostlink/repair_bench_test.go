// SPDX-License-Identifier: Apache-2.0

//go:build bench

package hostlink

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// podsOfAFullNode is the number of pods that operators allow on a large node.
const podsOfAFullNode = 250

// BenchmarkRepairOfAFullNode repairs the host links of a full node that lacks nothing.
func BenchmarkRepairOfAFullNode(b *testing.B) {
	r := newRig(b)
	for i := range podsOfAFullNode {
		_, entries := r.pod(fmt.Sprintf("p%d", i), []string{fmt.Sprintf("10.0.0.%d/24", i+2), fmt.Sprintf("fd00::%x/64", i+256)})
		r.must(r.links.Make(entries[0]))
	}
	r.must(r.links.Repair())
	before := processorTime(b)
	for b.Loop() {
		r.must(r.links.Repair())
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// processorTime returns what this process has used.
func processorTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
