//go:build bench

package allocate

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/apiserver"
)

// Both benchmarks measure raw creates of leases by the same API server in the
// same run, in turns with allocations, so that the ratio stands whatever the
// machine. Neither waits for probes.

// BenchmarkLatency measures one allocation at a time. A ratio is that of
// allocation to raw create, at the median and at p99.
func BenchmarkLatency(b *testing.B) {
	server := apiserver.New(b)
	n := newNode(b, server.Admin(), ipam.Share{})
	pool := wide(b, 0)
	// The first create of a kind takes the API server seconds.
	if err := rawCreate(b.Context(), n); err != nil {
		b.Fatal(err)
	}
	var raw, allocated []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		if err := rawCreate(b.Context(), n); err != nil {
			b.Fatal(err)
		}
		raw = append(raw, time.Since(start))

		start = time.Now()
		l, err := n.allocate(b.Context(), fmt.Sprintf("c%d", i), pool)
		if err != nil {
			b.Fatal(err)
		}
		allocated = append(allocated, time.Since(start))
		// Only then is there room, and it does not count.
		if err := n.store.Delete(b.Context(), l); err != nil {
			b.Fatal(err)
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

// BenchmarkRate measures allocations per second by agents with five workers
// each on one pool of 2000 addresses, in medians of several rounds. A round
// takes at most half of what is free, with the bitmap as it was before it.
func BenchmarkRate(b *testing.B) {
	server := apiserver.New(b)
	for _, c := range []struct{ agents, full int }{{1, 0}, {10, 0}, {10, 90}, {10, 99}} {
		b.Run(fmt.Sprintf("agents=%d/full=%d%%", c.agents, c.full), func(b *testing.B) {
			nodes := make([]*node, c.agents)
			for i := range nodes {
				nodes[i] = newNode(b, server.Admin(), ipam.Share{Index: i, Count: c.agents})
			}
			pool := wide(b, c.full)
			measureRates(b, nodes, pool, int(pool.Set.Len())*(100-c.full)/100)
		})
	}
}

const (
	workers  = 5
	rounds   = 5
	perRound = 300
)

func measureRates(b *testing.B, nodes []*node, pool ipam.Candidate, free int) {
	b.Cleanup(func() { emptyPool(b, nodes[0]) })
	occupyMarked(b, nodes, pool)
	count := min(perRound, free/2)
	var raw, rate, ratio, latency []float64
	creates, lists := calls(nodes)
	for b.Loop() {
		for range rounds {
			r := perSecond(b, nodes, count, func(ctx context.Context, n *node, _ int) error { return rawCreate(ctx, n) })
			for _, n := range nodes {
				n.restart() // what the last round taught them
			}
			var mu sync.Mutex
			var got []*v1alpha1.IPLease
			a := perSecond(b, nodes, count, func(ctx context.Context, n *node, i int) error {
				start := time.Now()
				l, err := n.allocate(ctx, fmt.Sprintf("c%d", i), pool)
				mu.Lock()
				defer mu.Unlock()
				latency = append(latency, float64(time.Since(start).Microseconds()))
				got = append(got, l)
				return err
			})
			raw, rate, ratio = append(raw, r), append(rate, a), append(ratio, a/r)
			perSecond(b, nodes, len(got), func(ctx context.Context, n *node, i int) error {
				return n.store.Delete(ctx, got[i])
			})
		}
	}
	allCreates, allLists := calls(nodes)
	allocations := float64(len(latency))
	b.ReportMetric(median(rate), "alloc/s")
	b.ReportMetric(median(raw), "raw/s")
	b.ReportMetric(median(ratio), "ratio")
	b.ReportMetric(median(latency), "p50-µs")
	b.ReportMetric(float64(allCreates-creates)/allocations-1, "collisions/alloc")
	b.ReportMetric(float64(allLists-lists)/allocations, "lists/alloc")
	b.ReportMetric(0, "ns/op")
}

// wide is a pool of 2000 addresses of which so many in a hundred are marked.
func wide(b *testing.B, full int) ipam.Candidate {
	b.Helper()
	c := candidate(b, "wide", nil, "10.0.0.1-10.0.7.208")
	c.Subnet = netip.MustParsePrefix("10.0.0.0/16")
	c.Pool.Spec.Network = ""
	var bits ipam.Bitmap
	for i := range c.Set.Len() {
		if offset, _ := ipam.Offset(c.Subnet, c.Set.At(i)); int(i*37%100) < full {
			bits = bits.Mark(offset)
		}
	}
	c.Pool.Status.InUse = ipam.EncodeBitmap(bits)
	return c
}

// occupyMarked creates the leases that the bitmap shows.
func occupyMarked(b *testing.B, nodes []*node, pool ipam.Candidate) {
	b.Helper()
	bits, err := ipam.DecodeBitmap(pool.Pool.Status.InUse)
	if err != nil {
		b.Fatal(err)
	}
	var marked []netip.Addr
	for i := range pool.Set.Len() {
		addr := pool.Set.At(i)
		if offset, _ := ipam.Offset(pool.Subnet, addr); bits.Has(offset) {
			marked = append(marked, addr)
		}
	}
	perSecond(b, nodes, len(marked), func(ctx context.Context, n *node, i int) error {
		_, err := n.store.Create(ctx, lease.Request{Pool: pool.Pool.Name, Addr: marked[i], Holder: holder("other")})
		return err
	})
}

// rawCreate creates a lease as large as an allocated one, of an address of its own.
func rawCreate(ctx context.Context, n *node) error {
	i := n.raw.Add(1)
	addr := netip.AddrFrom4([4]byte{172, byte(n.share.Index), byte(i >> 8), byte(i)})
	l := &v1alpha1.IPLease{Spec: lease.Bind(
		lease.Request{Pool: "raw", Addr: addr, Holder: holder("c")},
		lease.Owner{Node: "n0", Session: "n0/boot", Now: time.Now()})}
	l.Name = v1alpha1.LeaseName("", addr)
	return n.client.Create(ctx, l)
}

func holder(container string) v1alpha1.Holder {
	return v1alpha1.Holder{Namespace: "shop", Pod: "web-0", ContainerID: container, Interface: "eth0"}
}

// perSecond spreads calls over the workers of all nodes and returns their rate.
func perSecond(b *testing.B, nodes []*node, count int, do func(context.Context, *node, int) error) float64 {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for _, n := range nodes {
		for range workers {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
					if err := do(b.Context(), n, i); err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	return float64(count) / time.Since(start).Seconds()
}

func calls(nodes []*node) (creates, lists int64) {
	for _, n := range nodes {
		creates += n.creates.Load()
		lists += n.lists.Load()
	}
	return creates, lists
}

func emptyPool(b *testing.B, n *node) {
	b.Helper()
	// The benchmark's context has ended by now.
	if err := n.client.DeleteAllOf(context.Background(), &v1alpha1.IPLease{}, client.GracePeriodSeconds(0)); err != nil {
		b.Error(err)
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
