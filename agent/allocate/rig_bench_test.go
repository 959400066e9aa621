// SPDX-License-Identifier: Apache-2.0

//go:build bench

package allocate

import (
	"context"
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
)

// wide is a pool of 2000 addresses, or of 200 in a small benchmark. So many in a hundred are marked.
func wide(b *testing.B, full int) ipam.Candidate {
	b.Helper()
	addresses := "10.0.0.1-10.0.7.208"
	if testing.Short() {
		addresses = "10.0.0.1-10.0.0.200"
	}
	c := candidate(b, "wide", nil, addresses)
	c.Subnet = netip.MustParsePrefix("10.0.0.0/16")
	c.Pool.Spec.Network = ""
	var bits poolset.Bitmap
	for i := range c.Set.Len() {
		if offset, _ := poolset.Offset(c.Subnet, c.Set.At(i)); int(i*37%100) < full {
			bits = bits.Mark(offset)
		}
	}
	c.Pool.Status.InUse = poolset.EncodeBitmap(bits)
	return c
}

// occupyMarked creates the leases that the bitmap shows.
func occupyMarked(b *testing.B, nodes []*node, pool ipam.Candidate) {
	b.Helper()
	bits := check.Value(poolset.DecodeBitmap(pool.Pool.Status.InUse))(b)
	var marked []netip.Addr
	on := make([][]int, len(nodes))
	for i := range pool.Set.Len() {
		addr := pool.Set.At(i)
		if offset, _ := poolset.Offset(pool.Subnet, addr); bits.Has(offset) {
			at := len(marked) % len(nodes)
			on[at] = append(on[at], len(marked))
			marked = append(marked, addr)
		}
	}
	each(b, nodes, on, func(ctx context.Context, n *node, i int) error {
		_, err := n.store.Create(ctx, lease.Request{Pool: pool.Pool.Name, Addr: marked[i], Holder: holder("other")})
		return err
	})
}

// warmUp makes one create, since the first of a kind takes the API server seconds.
func warmUp(b *testing.B, n *node) {
	b.Helper()
	l := check.Value(rawCreate(b.Context(), n))(b)
	remove(b, n, l)
}

// rawCreate creates a lease as large as an allocated one, of an address of its own.
func rawCreate(ctx context.Context, n *node) (*v1alpha1.IPLease, error) {
	i := n.raw.Add(1)
	addr := netip.AddrFrom4([4]byte{172, byte(n.share.Index), byte(i >> 8), byte(i)})
	l := &v1alpha1.IPLease{Spec: lease.Bind(
		lease.Request{Pool: "raw", Addr: addr, Holder: holder("c")},
		lease.Owner{Node: "n0", Session: "n0/boot", Now: time.Now()})}
	l.Name = v1alpha1.LeaseName("", addr)
	return l, n.client.Create(ctx, l)
}

func holder(container string) v1alpha1.Holder {
	return v1alpha1.Holder{Namespace: "shop", Pod: "web-0", ContainerID: container, Interface: "eth0"}
}

// remove deletes leases; nil ones were never got.
func remove(b *testing.B, n *node, leases ...*v1alpha1.IPLease) {
	b.Helper()
	for _, l := range leases {
		if l == nil {
			continue
		}
		if err := n.store.Delete(b.Context(), l); err != nil {
			b.Error(err)
		}
	}
}

// each makes the calls dealt to each node, by its workers.
func each(b *testing.B, nodes []*node, on [][]int, do func(context.Context, *node, int) error) {
	b.Helper()
	var wg sync.WaitGroup
	for at, n := range nodes {
		var next atomic.Int64
		for range workers {
			wg.Go(func() {
				for k := int(next.Add(1)) - 1; k < len(on[at]); k = int(next.Add(1)) - 1 {
					if err := do(b.Context(), n, on[at][k]); err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
}

func emptyPool(b *testing.B, n *node) {
	b.Helper()
	// The benchmark's context has ended by now.
	check.OK(b, n.client.DeleteAllOf(context.Background(), &v1alpha1.IPLease{}, client.GracePeriodSeconds(0)))
}
