// SPDX-License-Identifier: Apache-2.0

//go:build bench

package allocate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/figure"
)

// callers ask at the same time on each agent.
const callers = 5

// TestAgentsShareOnePool measures allocations a second by agents that share one pool of 2 000 addresses, beside raw
// creates by the same clients. Bursts of both take turns, so that the ratio stands on any machine.
//
// A burst asks for at most half of what is free, so that no call may be refused. The agents know
// only the bitmap as it was when the burst began. The calls of a burst go to the agents at
// random, as pods to nodes. No call waits for a probe.
func TestAgentsShareOnePool(t *testing.T) {
	server := controlplane.New(t)
	first := newNode(t, server.Admin(), ipam.Share{})
	check.OK(t, first.store.Delete(t.Context(), check.Value(first.rawCreate(t.Context(), 0))(t))) // the first write of a kind takes seconds
	for _, c := range []struct {
		agents, full int
		goal         float64
	}{{1, 0, 0.9}, {10, 0, 0.9}, {10, 90, 0.9}, {10, 99, 0.7}} {
		s := &sharing{T: t, server: server, pool: wide(t, c.full), rand: rand.New(rand.NewPCG(1, 2))}
		for i := range c.agents {
			s.nodes = append(s.nodes, newNode(t, server.Admin(), ipam.Share{Index: i, Count: c.agents}))
		}
		s.occupy()
		s.burst = min(figure.Size(300, 20), int(s.pool.Set.Len())*(100-c.full)/100/2)
		for range figure.Size(7, 1) {
			s.round(figure.Size(300, 20) / s.burst)
		}
		s.report(fmt.Sprintf("%d agents, pool %d %% full", c.agents, c.full), c.goal)
		check.OK(t, first.client.DeleteAllOf(t.Context(), &v1alpha1.IPLease{}, client.GracePeriodSeconds(0)))
	}
}

// sharing is the measurement of one case.
type sharing struct {
	*testing.T
	server *controlplane.Server
	nodes  []*node
	pool   ipam.Candidate
	burst  int
	rand   *rand.Rand

	raw, allocated []time.Duration // of each round
	ratios, cpus   []float64       // of each round
	done           int
	failed         atomic.Int64
}

// round makes bursts of raw creates and of allocations in turns.
func (s *sharing) round(bursts int) {
	var raw, allocated, rawCPU, cpu time.Duration
	for i := range bursts {
		on := spread(s.burst, len(s.nodes), s.rand)
		for k := range 2 {
			if (i+k)%2 == 0 {
				took, used := s.timed(on, func(ctx context.Context, n *node, i int) (*v1alpha1.IPLease, error) { return n.rawCreate(ctx, i) })
				raw, rawCPU = raw+took, rawCPU+used
				continue
			}
			for _, n := range s.nodes {
				n.restart()
			}
			took, used := s.timed(on, func(ctx context.Context, n *node, i int) (*v1alpha1.IPLease, error) {
				return n.allocate(ctx, fmt.Sprintf("c%d", i), s.pool)
			})
			allocated, cpu, s.done = allocated+took, cpu+used, s.done+s.burst
		}
	}
	s.raw, s.allocated = append(s.raw, raw), append(s.allocated, allocated)
	s.ratios, s.cpus = append(s.ratios, raw.Seconds()/allocated.Seconds()), append(s.cpus, cpu.Seconds()/rawCPU.Seconds())
}

// timed makes the calls of one burst, deletes their leases, and returns the time of the calls and the
// CPU time of the API server.
func (s *sharing) timed(on [][]int, call func(context.Context, *node, int) (*v1alpha1.IPLease, error)) (took, cpu time.Duration) {
	leases := make([]*v1alpha1.IPLease, s.burst)
	before, start := check.Value(s.server.CPU())(s), time.Now()
	s.each(on, func(n *node, i int) (err error) {
		leases[i], err = call(s.Context(), n, i)
		return err
	})
	took, cpu = time.Since(start), check.Value(s.server.CPU())(s)-before
	s.each(on, func(n *node, i int) error {
		if leases[i] == nil {
			return nil
		}
		return n.store.Delete(s.Context(), leases[i])
	})
	return took, cpu
}

// each makes the calls that were dealt to each agent, by its callers.
func (s *sharing) each(on [][]int, do func(*node, int) error) {
	var all sync.WaitGroup
	for at, n := range s.nodes {
		var next atomic.Int64
		for range callers {
			all.Go(func() {
				for k := int(next.Add(1)) - 1; k < len(on[at]); k = int(next.Add(1)) - 1 {
					if err := do(n, on[at][k]); err != nil {
						s.failed.Add(1)
						s.Log(err)
					}
				}
			})
		}
	}
	all.Wait()
}

func (s *sharing) report(name string, goal float64) {
	creates, lists := int64(0), int64(0)
	for _, n := range s.nodes {
		creates, lists = creates+n.creates.Load(), lists+n.lists.Load()
	}
	perRound := float64(s.done) / float64(len(s.ratios))
	figure.Report(s, "allocations a second, "+name, perRound/figure.Median(s.allocated).Seconds(), "a second")
	figure.Report(s, "the same beside raw creates, "+name, figure.Median(s.ratios), "× raw creates", figure.AtLeast(goal))
	figure.Report(s, "calls that failed, "+name, float64(s.failed.Load()), "calls", figure.AtMost(0))
	figure.Report(s, "collisions for each allocation, "+name, float64(creates)/float64(s.done)-1, "creates")
	figure.Report(s, "lists of leases for each allocation, "+name, float64(lists)/float64(s.done), "lists")
	figure.Report(s, "CPU of the API server for each allocation, "+name, figure.Median(s.cpus), "× raw create")
}

// spread deals calls to agents at random.
func spread(calls, agents int, r *rand.Rand) [][]int {
	on := make([][]int, agents)
	for i := range calls {
		at := r.IntN(agents)
		on[at] = append(on[at], i)
	}
	return on
}

// wide is a pool of 2 000 addresses, or of 200 in the short form. The bitmap marks so many in a hundred.
func wide(t *testing.T, full int) ipam.Candidate {
	t.Helper()
	addresses := "10.0.0.1-10.0.7.208"
	if testing.Short() {
		addresses = "10.0.0.1-10.0.0.200"
	}
	c := candidate(t, "wide", nil, addresses)
	c.Subnet, c.Pool.Spec.Network = netip.MustParsePrefix("10.0.0.0/16"), ""
	var bits poolset.Bitmap
	for i := range c.Set.Len() {
		if offset, _ := poolset.Offset(c.Subnet, c.Set.At(i)); int(i*37%100) < full {
			bits = bits.Mark(offset)
		}
	}
	c.Pool.Status.InUse = poolset.EncodeBitmap(bits)
	return c
}

// occupy creates the leases that the bitmap shows.
func (s *sharing) occupy() {
	bits := check.Value(poolset.DecodeBitmap(s.pool.Pool.Status.InUse))(s)
	var marked []netip.Addr
	for i := range s.pool.Set.Len() {
		addr := s.pool.Set.At(i)
		if offset, _ := poolset.Offset(s.pool.Subnet, addr); bits.Has(offset) {
			marked = append(marked, addr)
		}
	}
	s.each(spread(len(marked), len(s.nodes), s.rand), func(n *node, i int) error {
		_, err := n.store.Create(s.Context(), lease.Request{Pool: s.pool.Pool.Name, Addr: marked[i], Holder: holder("other")})
		return err
	})
}

// rawCreate creates a lease as large as an allocated one, at an address of its own.
func (n *node) rawCreate(ctx context.Context, i int) (*v1alpha1.IPLease, error) {
	addr := netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
	l := &v1alpha1.IPLease{Spec: lease.Bind(lease.Request{Pool: "raw", Addr: addr, Holder: holder("c")}, lease.Owner{Node: "n0", Session: "n0/boot", Now: time.Now()})}
	l.Name = v1alpha1.LeaseName("", addr)
	return l, n.client.Create(ctx, l)
}

func holder(container string) v1alpha1.Holder {
	return v1alpha1.Holder{Namespace: "shop", Pod: "web-0", ContainerID: container, Interface: "eth0"}
}
