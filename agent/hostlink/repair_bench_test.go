// SPDX-License-Identifier: Apache-2.0

//go:build bench

package hostlink

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// BenchmarkRepairOfAFullNode repairs the host links of a full node that lacks nothing. It has the 250
// pods that operators allow on a large node.
func BenchmarkRepairOfAFullNode(b *testing.B) {
	r := newRig(b)
	for i := range figure.Size(250, 5) {
		_, entries := r.pod(fmt.Sprintf("p%d", i), []string{fmt.Sprintf("10.0.0.%d/24", i+2), fmt.Sprintf("fd00::%x/64", i+256)})
		check.OK(r, r.links.Make(entries[0]))
	}
	check.OK(r, r.links.Repair())
	before := processorTime(b)
	for b.Loop() {
		check.OK(r, r.links.Repair())
	}
	figure.Report(b, "repair of the host links of 250 pods that lack nothing", figure.Milliseconds(processorTime(b)-before)/float64(b.N), "ms of CPU")
}

// processorTime returns what this process has used.
func processorTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	check.OK(tb, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
