// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// subnetState is an IPSubnet with the addresses that are left for pools.
type subnetState struct {
	*v1alpha1.IPSubnet
	prefix netip.Prefix
	// problem is the reason for which the IPSubnet is Invalid, or nil. valid is empty then.
	problem error
	// valid has the addresses of the spec. offered are those that pools may have: without reserved
	// addresses, addresses of older IPSubnets, and addresses of pools that people drew.
	valid, offered poolset.Set
	// taken are the addresses that pools of the network have already. free are the offered addresses
	// that no pool has.
	taken, free poolset.Set
	// perNamespace is the number of addresses that pools of a namespace have.
	perNamespace map[string]int64
	// subnets names the other IPSubnets, and drawn the pools of people, with common addresses.
	subnets, drawn []string
	// carving has the addresses that are about to be written, by pool. Their writer may still live.
	carving map[string]poolset.Set
}

// subnetStates returns the IPSubnets by name. taken are the addresses that pools of a network have already.
func subnetStates(f Facts, taken map[string]poolset.Set) map[string]*subnetState {
	var all []*subnetState
	for i := range f.Subnets {
		g := &subnetState{IPSubnet: &f.Subnets[i], perNamespace: map[string]int64{}, carving: map[string]poolset.Set{}}
		pool := g.AsPool()
		g.valid, g.problem = poolset.Validate(pool)
		if g.problem != nil {
			g.valid = poolset.Set{}
		}
		g.prefix, _ = poolset.Subnet(pool) // Validate has checked it
		for _, c := range g.Status.Carving {
			if s, err := poolset.Parse(c.IPs); err == nil && !f.Expired[c.Pool] {
				g.carving[c.Pool] = s
			}
		}
		all = append(all, g)
	}
	// Common addresses belong to the older IPSubnet, so two IPSubnets never give out one address.
	slices.SortFunc(all, func(a, b *subnetState) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	byName := map[string]*subnetState{}
	for i, g := range all {
		g.offered = g.valid.Minus(f.Reserved)
		for _, older := range all[:i] {
			if older.Spec.Network == g.Spec.Network && older.valid.Overlaps(g.valid) {
				g.offered = g.offered.Minus(older.valid)
				g.subnets, older.subnets = append(g.subnets, older.Name), append(older.subnets, g.Name)
			}
		}
		g.meet(f.Pools)
		g.taken = taken[g.Spec.Network]
		g.free = g.offered.Minus(g.taken)
		byName[g.Name] = g
	}
	// Addresses that are about to be written are free for their own pool only.
	for _, g := range all {
		for _, other := range all {
			for _, s := range other.carving {
				if other.Spec.Network == g.Spec.Network {
					g.free = g.free.Minus(s)
				}
			}
		}
		slices.Sort(g.subnets)
		slices.Sort(g.drawn)
	}
	return byName
}

// meet removes from the offer the addresses of the pools that people drew.
func (g *subnetState) meet(pools []v1alpha1.IPPool) {
	for i := range pools {
		pool := &pools[i]
		if pool.Spec.IPSubnet != "" || pool.Spec.Network != g.Spec.Network || pool.DeletionTimestamp != nil {
			continue
		}
		if s, err := poolset.Subnet(pool); err != nil || !s.Overlaps(g.prefix) {
			continue
		}
		drawn, err := poolset.Addresses(pool)
		if err == nil && drawn.Overlaps(g.valid) {
			g.offered = g.offered.Minus(drawn)
			g.drawn = append(g.drawn, pool.Name)
		}
	}
}

// take takes up to n addresses for a pool of a namespace.
func (g *subnetState) take(pool, namespace string, n uint64) poolset.Set {
	n = min(n, g.room(namespace))
	got := g.freeFor(pool).First(n)
	g.free = g.free.Minus(got)
	g.perNamespace[namespace] += int64(got.Len())
	return got
}

// freeFor returns the addresses that are free for a pool, and those about to be written into it.
func (g *subnetState) freeFor(pool string) poolset.Set {
	own := g.carving[pool]
	if own.Len() == 0 {
		return g.free
	}
	return g.free.Plus(own.And(g.offered).Minus(g.taken))
}

// room returns the number of addresses that maxPerNamespace leaves to a namespace.
func (g *subnetState) room(namespace string) uint64 {
	if g.Spec.MaxPerNamespace == nil {
		return math.MaxUint64
	}
	return uint64(max(0, *g.Spec.MaxPerNamespace-g.perNamespace[namespace]))
}

// isIPv6 reports whether a CIDR is of IPv6.
func isIPv6(cidr string) bool { return strings.Contains(cidr, ":") }

// managedPool is a pool that the controller made.
type managedPool struct {
	*v1alpha1.IPPool
	// ips are the addresses of the pool. excluded are those that it no longer hands out: they are
	// withdrawn. leased are those with a lease of the pool, wherever they are.
	ips, excluded, leased poolset.Set
	// lost are addresses that another pool has too, and keeps.
	lost poolset.Set
}

func (p *managedPool) place() place {
	return place{identityOf(p.Spec.Application), p.Spec.Application.Interface, isIPv6(p.Spec.Subnet)}
}

// managedPools returns the pools that the controller made, the oldest first. taken are the addresses of all
// pools and their leases, by network.
func managedPools(f Facts) (all []*managedPool, taken map[string]poolset.Set) {
	sets := map[string][]poolset.Set{}
	for i := range f.Pools {
		pool := &f.Pools[i]
		add := func(s poolset.Set) { sets[pool.Spec.Network] = append(sets[pool.Spec.Network], s) }
		add(f.Leased[pool.Name])
		if pool.Spec.IPSubnet == "" || pool.Spec.Application == nil {
			if s, err := poolset.Addresses(pool); err == nil {
				add(s)
			}
			continue
		}
		p := &managedPool{IPPool: pool, leased: f.Leased[pool.Name]}
		// The rules of the CRD refuse entries that cannot be read, except a range in the wrong order,
		// which the controller never writes.
		p.ips, _ = poolset.Parse(pool.Spec.IPs)
		p.excluded, _ = poolset.Parse(pool.Spec.ExcludeIPs)
		add(p.ips)
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *managedPool) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	taken = map[string]poolset.Set{}
	for network, of := range sets {
		taken[network] = poolset.Union(of...)
	}
	settle(all)
	return all, taken
}

// settle decides which of two pools keeps a common address: the one with a lease, otherwise the older
// one. Two pools can have one only if a person edited a pool by force, or if the write of an earlier
// leader arrived very late.
func settle(all []*managedPool) {
	byNetwork := map[string][]*managedPool{}
	for _, p := range all {
		byNetwork[p.Spec.Network] = append(byNetwork[p.Spec.Network], p)
	}
	for _, managedPools := range byNetwork {
		sets, total := make([]poolset.Set, len(managedPools)), uint64(0)
		for i, p := range managedPools {
			sets[i], total = p.ips, total+p.ips.Len()
		}
		if poolset.Union(sets...).Len() == total {
			continue // the usual case
		}
		for i, p := range managedPools {
			for _, older := range managedPools[:i] {
				if common := p.ips.And(older.ips); common.Len() > 0 {
					p.lost = p.lost.Plus(common.Minus(p.leased))
					older.lost = older.lost.Plus(common.And(p.leased).Minus(older.leased))
				}
			}
		}
	}
}
