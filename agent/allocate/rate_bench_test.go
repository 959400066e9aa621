// SPDX-License-Identifier: Apache-2.0

//go:build bench

package allocate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/figure"
)

// workers ask at the same time on each node.
const workers = 5

// perRound is the number of allocations of a round, and of its raw creates. The figures are medians of
// rounds.
func perRound() int { return figure.Size(300, 20) }

// BenchmarkRate measures allocations per second by agents with five workers
// each, on one pool of 2000 addresses, beside raw creates by the same clients.
// Bursts of both take turns, so that the ratio stands whatever the machine.
//
// A burst asks for at most half of what is free: nobody is refused for a good
// reason, and whoever is refused has failed. The agents have learnt nothing
// but the bitmap, which is as it was when the burst began. The calls of a burst
// fall upon the agents at random, as pods upon nodes. Nothing waits for probes.
func BenchmarkRate(b *testing.B) {
	server := controlplane.New(b)
	warmUp(b, newNode(b, server.Admin(), ipam.Share{}))
	for _, c := range []struct{ agents, full int }{{1, 0}, {10, 0}, {10, 50}, {10, 90}, {10, 99}} {
		name := fmt.Sprintf("allocations a second, agents %d, pool %d %% full", c.agents, c.full)
		b.Run(fmt.Sprintf("agents=%d/full=%d%%", c.agents, c.full), func(b *testing.B) {
			r := rating{B: b, server: server, pool: wide(b, c.full), rand: rand.New(rand.NewPCG(1, 2))}
			for i := range c.agents {
				r.nodes = append(r.nodes, newNode(b, server.Admin(), ipam.Share{Index: i, Count: c.agents}))
			}
			b.Cleanup(func() { emptyPool(b, r.nodes[0]) })
			occupyMarked(b, r.nodes, r.pool)
			r.burst = min(perRound(), int(r.pool.Set.Len())*(100-c.full)/100/2)
			for b.Loop() {
				for range figure.Size(5, 1) {
					r.round()
				}
			}
			r.report(name)
		})
	}
}

// rating is the measurement of one case.
type rating struct {
	*testing.B
	server *controlplane.Server
	nodes  []*node
	pool   ipam.Candidate
	burst  int
	rand   *rand.Rand

	raw, allocated       side
	ratios, cpuRatios    []float64
	latencies            []float64
	creates, lists, done int64
}

// side is what one of the two has taken, by round.
type side struct{ elapsed, cpu []time.Duration }

// add counts a burst into the present round.
func (s *side) add(elapsed, cpu time.Duration) {
	s.elapsed[len(s.elapsed)-1] += elapsed
	s.cpu[len(s.cpu)-1] += cpu
}

func (s *side) begin() { s.elapsed, s.cpu = append(s.elapsed, 0), append(s.cpu, 0) }

func (s *side) last() (elapsed, cpu float64) {
	return s.elapsed[len(s.elapsed)-1].Seconds(), s.cpu[len(s.cpu)-1].Seconds()
}

func (r *rating) round() {
	r.raw.begin()
	r.allocated.begin()
	for i := range perRound() / r.burst {
		on := spread(r.burst, len(r.nodes), r.rand)
		if i%2 == 0 {
			r.create(on)
			r.allocate(on)
		} else {
			r.allocate(on)
			r.create(on)
		}
	}
	raw, rawCPU := r.raw.last()
	allocated, cpu := r.allocated.last()
	r.ratios, r.cpuRatios = append(r.ratios, raw/allocated), append(r.cpuRatios, cpu/rawCPU)
}

// create makes one burst of raw creates.
func (r *rating) create(on [][]int) {
	created := make([]*v1alpha1.IPLease, r.burst)
	r.raw.add(r.timed(func() {
		each(r.B, r.nodes, on, func(ctx context.Context, n *node, i int) (err error) {
			created[i], err = rawCreate(ctx, n)
			return err
		})
	}))
	r.remove(on, created)
}

// allocate makes one burst of allocations.
func (r *rating) allocate(on [][]int) {
	for _, n := range r.nodes {
		n.restart()
	}
	got := make([]*v1alpha1.IPLease, r.burst)
	latencies := make([]float64, r.burst)
	creates, lists := calls(r.nodes)
	r.allocated.add(r.timed(func() {
		each(r.B, r.nodes, on, func(ctx context.Context, n *node, i int) (err error) {
			start := time.Now()
			got[i], err = n.allocate(ctx, fmt.Sprintf("c%d", i), r.pool)
			latencies[i] = float64(time.Since(start).Microseconds())
			return err
		})
	}))
	allCreates, allLists := calls(r.nodes)
	r.creates, r.lists, r.done = r.creates+allCreates-creates, r.lists+allLists-lists, r.done+int64(r.burst)
	r.latencies = append(r.latencies, latencies...)
	r.remove(on, got)
}

// timed returns how long do takes, and how much CPU the API server.
func (r *rating) timed(do func()) (elapsed, cpu time.Duration) {
	before := r.cpu()
	start := time.Now()
	do()
	elapsed = time.Since(start)
	return elapsed, r.cpu() - before
}

func (r *rating) cpu() time.Duration {
	return check.Value(r.server.CPU())(r)
}

func (r *rating) remove(on [][]int, leases []*v1alpha1.IPLease) {
	each(r.B, r.nodes, on, func(_ context.Context, n *node, i int) error {
		remove(r.B, n, leases[i])
		return nil
	})
}

func (r *rating) report(name string) {
	failed := int64(0)
	for _, n := range r.nodes {
		failed += n.failed.Load()
	}
	n := perRound() / r.burst * r.burst
	r.ReportMetric(float64(n)/figure.Median(r.allocated.elapsed).Seconds(), "alloc/s")
	r.ReportMetric(float64(n)/figure.Median(r.raw.elapsed).Seconds(), "raw/s")
	figure.Report(r, name, figure.Median(r.ratios), "× raw creates")
	r.ReportMetric(float64(figure.Median(r.allocated.cpu).Microseconds())/float64(n), "cpu-µs/alloc")
	r.ReportMetric(float64(figure.Median(r.raw.cpu).Microseconds())/float64(n), "cpu-µs/raw")
	r.ReportMetric(figure.Median(r.cpuRatios), "cpu-ratio")
	r.ReportMetric(figure.Median(r.latencies), "p50-µs")
	r.ReportMetric(float64(r.creates)/float64(r.done)-1, "collisions/alloc")
	r.ReportMetric(float64(r.lists)/float64(r.done), "lists/alloc")
	r.ReportMetric(float64(failed), "failed")
	r.ReportMetric(0, "ns/op")
}

// spread deals calls to nodes at random.
func spread(count, nodes int, r *rand.Rand) [][]int {
	on := make([][]int, nodes)
	for i := range count {
		n := r.IntN(nodes)
		on[n] = append(on[n], i)
	}
	return on
}

func calls(nodes []*node) (creates, lists int64) {
	for _, n := range nodes {
		creates += n.creates.Load()
		lists += n.lists.Load()
	}
	return creates, lists
}
