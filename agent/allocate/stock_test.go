// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// stock is the Warm leases of an agent. Safe for concurrent use.
type stock struct {
	mu     sync.Mutex
	leases []*v1alpha1.IPLease
}

// take returns a lease that will do for a family, in the order of its pools, or nil.
func (s *stock) take(f ipam.Family) *v1alpha1.IPLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(f)
	if i < 0 {
		return nil
	}
	l := s.leases[i]
	s.leases = slices.Delete(s.leases, i, i+1)
	return l
}

func (s *stock) has(f ipam.Family) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(f) >= 0
}

func (s *stock) find(f ipam.Family) int {
	for _, c := range f.Pools {
		i := slices.IndexFunc(s.leases, func(l *v1alpha1.IPLease) bool {
			addr := netip.MustParseAddr(l.Spec.Address)
			return l.Spec.Pool == c.Pool.Name && c.Set.Contains(addr) && (!f.Requested.IsValid() || f.Requested == addr)
		})
		if i >= 0 {
			return i
		}
	}
	return -1
}

func (s *stock) put(l *v1alpha1.IPLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = append(s.leases, l)
}

func (s *stock) shed() (oldest *v1alpha1.IPLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leases) > 0 {
		oldest, s.leases = s.leases[0], s.leases[1:]
	}
	return oldest
}

// keepWarm makes a Warm lease of a random pool, or gives one up.
func (p *tenant) keepWarm(r *rand.Rand) {
	switch {
	case chance(r, 20):
		if l := p.stock.shed(); l != nil {
			p.release(r, []*v1alpha1.IPLease{l})
		}
		return
	case !chance(r, 40):
		return
	}
	pool := &p.pools[r.IntN(len(p.pools))]
	labels := labelsOf(p.node)
	c, rejection := ipam.OnNode(pool, p.pools, p.node, labels, p.reserved)
	j := judgement{world: p.world, from: p.history.now()}
	why := append(closed(pool, p.allowsAll[pool.Name], p.allows[pool.Name]), notOnNode(pool, p.node, labels)...)
	if rejection != nil {
		if !slices.Contains(why, rejection.Reason) {
			p.t.Errorf("seed %d: pool %s is kept warm on no %s for %s, not for %v", p.seed, pool.Name, p.node, rejection.Reason, why)
		}
		return
	}
	if len(why) > 0 {
		p.t.Errorf("seed %d: pool %s is kept warm on %s in spite of %v", p.seed, pool.Name, p.node, why)
	}
	f := ipam.Family{IPv6: c.Subnet.Addr().Is6(), Source: "spec.warm of the pool", Interface: "node " + p.node, Pools: []ipam.Candidate{c}}
	l, _, err := onDemand(p.t.Context(), p.a, p.wish(r, f, v1alpha1.Holder{}))
	j.to = p.history.now()
	if err != nil {
		none := (*ipam.NoPoolError)(nil)
		if !errors.As(err, &none) || j.exhausted(pool) != nil {
			p.t.Errorf("seed %d: no Warm lease of pool %s: %v", p.seed, pool.Name, err)
		}
		return
	}
	p.hold(l, warmOf(p.node), "")
	p.stock.put(l)
}
