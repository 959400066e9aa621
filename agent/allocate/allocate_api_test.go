// SPDX-License-Identifier: Apache-2.0

//go:build api

package allocate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// TestTwoNodesRaceForTheLastAddresses leaves one or two addresses of a pool free and lets two nodes ask at
// once, a thousand times: two addresses serve both, one serves one and only the other is told "exhausted".
func TestTwoNodesRaceForTheLastAddresses(t *testing.T) {
	const rounds = 1000
	server := controlplane.New(t)
	var nodes [2]*node
	for i := range nodes {
		nodes[i] = newNode(t, server.Admin(), ipam.Share{Index: i, Count: len(nodes)})
	}
	pool := candidate(t, "a", nil, "10.0.0.1-10.0.0.5")
	pool.Pool.Spec.Network = ""

	for _, addr := range []string{"10.0.0.1", "10.0.0.3", "10.0.0.5"} {
		occupy(t, nodes[0], addr)
	}
	last := []string{"10.0.0.2", "10.0.0.4"}

	r := rand.New(rand.NewPCG(1, 2))
	served, refused := 0, 0
	for round := range rounds {
		free := 1 + r.IntN(2)
		var other *v1alpha1.IPLease
		if free == 1 {
			other = occupy(t, nodes[r.IntN(2)], last[r.IntN(2)])
		}
		// The bitmap is right, wrong in any way, or empty.
		var bits poolset.Bitmap
		for offset := range uint64(6) {
			if r.IntN(2) == 0 {
				bits = bits.Mark(offset)
			}
		}
		pool.Pool.Status.InUse = poolset.EncodeBitmap(bits)

		got, errs := raceOnce(t, nodes, pool, round)
		addrs := map[string]int{}
		for i, l := range got {
			switch none := (*ipam.NoPoolError)(nil); {
			case errs[i] == nil:
				addrs[l.Spec.Address]++
				served++
			case errors.As(errs[i], &none) && free == 1:
				refused++
			default:
				t.Fatalf("round %d, %d free: node %d: %v", round, free, i, errs[i])
			}
		}
		check.Must(t, len(addrs) == free, "round %d, %d free: got %v, %v", round, free, addrs, errs)
		for i, l := range got {
			release(t, nodes[i], l)
		}
		release(t, nodes[0], other)
	}
	check.That(t, served != 0 && refused != 0, "%d served, %d refused: not both cases were met", served, refused)
	creates, lists := nodes[0].creates.Load()+nodes[1].creates.Load(), nodes[0].lists.Load()+nodes[1].lists.Load()
	t.Logf("%d rounds: %d addresses by %d creates and %d lists, %d times exhausted, no duplicate", rounds, served, creates, lists, refused)
}

// occupy leases an address to somebody who does not take part.
func occupy(t *testing.T, n *node, addr string) *v1alpha1.IPLease {
	t.Helper()
	l := check.Value(n.store.Create(t.Context(), lease.Request{
		Pool: "a", Addr: netip.MustParseAddr(addr), Holder: v1alpha1.Holder{Namespace: "shop", Pod: "db-0", ContainerID: "other"},
	}))(t)
	return l
}

func raceOnce(t *testing.T, nodes [2]*node, pool ipam.Candidate, round int) (got [2]*v1alpha1.IPLease, errs [2]error) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, n := range nodes {
		wg.Go(func() {
			<-start
			got[i], errs[i] = n.allocate(t.Context(), fmt.Sprintf("race-%d-%d", round, i), pool)
		})
	}
	close(start)
	wg.Wait()
	return got, errs
}

func release(t *testing.T, n *node, l *v1alpha1.IPLease) {
	t.Helper()
	if l == nil {
		return
	}
	check.OK(t, n.store.Delete(t.Context(), l))
	n.Freed(l.Spec.Pool, netip.MustParseAddr(l.Spec.Address))
}

// TestPropertyOnAnAPIServer is TestProperty with real leases.
func TestPropertyOnAnAPIServer(t *testing.T) {
	server := controlplane.New(t)
	var all tally
	for seed := range uint64(16) {
		w := newWorld(seed)
		all.add(w.run(t, 3, 4, 6, func(index int) (Leases, func(*v1alpha1.IPLease) error) {
			n := newNode(t, server.Admin(), ipam.Share{Index: index})
			leases := recorded{n.store, w.history}
			return leases, leases.end
		}))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		// Those of strangers are left.
		check.OK(t, connect(t, server.Admin()).DeleteAllOf(t.Context(), &v1alpha1.IPLease{}, client.GracePeriodSeconds(0)))
	}
	all.check(t)
}

// recorded tells the history what is done, before it is done if it makes a lease, and after it if it ends one.
type recorded struct {
	*lease.Store
	history *history
}

func (r recorded) Create(ctx context.Context, q lease.Request) (*v1alpha1.IPLease, error) {
	name := v1alpha1.LeaseName(q.Network, q.Addr)
	r.history.add(name, +1)
	l, err := r.Store.Create(ctx, q)
	if err != nil && !lease.IsUnavailable(err) { // a lost answer may have made it
		r.history.add(name, -1)
	}
	return l, err
}

func (r recorded) end(l *v1alpha1.IPLease) error {
	if err := whenAvailable(func() error { return r.Delete(context.Background(), l) }); err != nil {
		return err
	}
	r.history.add(l.Name, -1)
	return nil
}
