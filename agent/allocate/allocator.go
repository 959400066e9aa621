// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"sync"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/apiserver"
)

// Leases is the part of lease.Store that allocation needs.
type Leases interface {
	Create(ctx context.Context, r lease.Request) (*v1alpha1.IPLease, error)
	TakenIn(ctx context.Context, pool string) (map[netip.Addr]struct{}, error)
}

// Need describes the address that one interface needs of one family.
type Need struct {
	Family ipam.Family
	// Parent and Retention are written into the lease. Retention may be nil.
	Parent    string
	Retention func(*v1alpha1.IPPool) *v1alpha1.LeaseRetention
	// Holder is written by First. The callers of Candidates name the holder themselves.
	Holder v1alpha1.Holder
	Share  ipam.Share
	// Only are addresses of the family's only pool. If there are any, no other address is a candidate.
	Only []netip.Addr
	// Sighted and Taken are hints, as in ipam.View; nil is allowed. With Only, and for a requested
	// address, these hints, Share and the cooldown do not count.
	Sighted, Taken func(*v1alpha1.IPPool, netip.Addr) bool
}

// Options of an Allocator.
type Options struct {
	Leases Leases
	Clock  clock.PassiveClock
	// Last has the address after which each rotation continues, by pool. It is the result of the
	// method Last before a restart, and is not changed.
	Last map[string]netip.Addr
	// Rand gives each rotation its own source; nil seeds them at random.
	Rand func() *rand.Rand
}

// Allocator hands out addresses of pools on this node. Safe for concurrent use.
type Allocator struct {
	leases Leases
	clock  clock.PassiveClock
	rand   func() *rand.Rand

	mu sync.Mutex
	// last has, for each rotation not used since the start, the address after which it continues.
	last  map[string]netip.Addr
	pools map[string]*ipam.Rotation

	// lists lists the leases of a pool. A list costs the API server about as much as ten creates, so
	// the calls of this node share a list.
	lists *apiserver.Reads[*listing]
}

// New returns an Allocator.
func New(o Options) *Allocator {
	a := &Allocator{leases: o.Leases, clock: o.Clock, rand: o.Rand, last: o.Last, pools: map[string]*ipam.Rotation{}}
	if a.rand == nil {
		a.rand = func() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }
	}
	a.lists = apiserver.NewReads("the leases of pool", listTimeout, func(ctx context.Context, pool string) (*listing, error) {
		taken, err := a.leases.TakenIn(ctx, pool)
		return &listing{taken: taken}, err
	})
	return a
}

// Freed reports that this node has given up an address: if its lease is gone, it cools down.
func (a *Allocator) Freed(pool string, addr netip.Addr) { a.in(pool).Freed(addr) }

// Last returns the last address of each rotation, by pool, for the journal.
func (a *Allocator) Last() map[string]netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := map[string]netip.Addr{}
	maps.Copy(last, a.last)
	for pool, p := range a.pools {
		if addr := p.Last(); addr.IsValid() {
			last[pool] = addr
		}
	}
	return last
}

func (a *Allocator) in(pool string) *ipam.Rotation {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.pools[pool]
	if !ok {
		p = ipam.NewRotation(a.last[pool], a.rand(), a.clock)
		a.pools[pool] = p
	}
	return p
}
