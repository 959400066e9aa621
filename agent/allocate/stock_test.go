// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
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
		check.That(p.t, slices.Contains(why, rejection.Reason),
			"seed %d: pool %s is kept warm on no %s for %s, not for %v", p.seed, pool.Name, p.node, rejection.Reason, why)
		return
	}
	check.None(p.t, why, "seed %d: pool %s is kept warm on %s in spite of", p.seed, pool.Name, p.node)
	f := ipam.Family{IPv6: c.Subnet.Addr().Is6(), Source: "spec.warm of the pool", Interface: "node " + p.node, Pools: []ipam.Candidate{c}}
	l, _, err := onDemand(p.t.Context(), p.a, p.wish(r, f, v1alpha1.Holder{}))
	j.to = p.history.now()
	if err != nil {
		none := (*ipam.NoPoolError)(nil)
		check.That(p.t, errors.As(err, &none) && j.exhausted(pool) == nil, "seed %d: no Warm lease of pool %s: %v", p.seed, pool.Name, err)
		return
	}
	p.hold(l, warmOf(p.node), "")
	p.stock.put(l)
}

// retainBefore makes Retained leases of before the pools were edited: also of
// addresses that they do not hand out, and of pools that are closed.
func (w *world) retainBefore(t *testing.T, leases Leases, l *ledger) {
	t.Helper()
	r := rand.New(rand.NewPCG(w.seed, 2))
	for i := range w.pools {
		p := &w.pools[i]
		if !chance(r, 50) {
			continue
		}
		old := interfaceOfPod{pod: fmt.Sprintf("old-%d", i), iface: interfaceOf(0)}
		made, err := leases.Create(t.Context(), lease.Request{
			Pool: p.Name, Network: p.Spec.Network, Addr: addrOf(r, p.Spec.Subnet),
			Holder: v1alpha1.Holder{Namespace: "shop", Pod: old.pod, ContainerID: old.pod, Interface: old.iface},
		})
		if err != nil {
			continue // a pool that overlaps this one has the address
		}
		old.leases = []*v1alpha1.IPLease{made}
		l.live[made.Name] = "Retained"
		l.retained = append(l.retained, old)
	}
}

// keep makes leases of a pod of the same name the interface's own. It asks for
// no other address.
func (a *ask) keep(leases []*v1alpha1.IPLease) {
	a.kept, a.IPs = leases, nil
	for _, l := range leases {
		a.Kept = append(a.Kept, ipam.Kept{Addr: netip.MustParseAddr(l.Spec.Address), Pool: l.Spec.Pool})
	}
}

// keptOf returns the lease of a family that is kept for the interface, or nil.
func (a *ask) keptOf(f ipam.Family) (l *v1alpha1.IPLease, ok bool, err error) {
	for _, l := range a.kept {
		if netip.MustParseAddr(l.Spec.Address).Is6() != f.IPv6 {
			continue
		}
		for _, c := range f.Pools {
			if c.Pool.Name == l.Spec.Pool {
				return l, true, nil
			}
		}
		return nil, false, errElsewhere
	}
	return nil, false, nil
}
