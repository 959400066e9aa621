// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"cmp"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// plot is a pool that the controller made.
type plot struct {
	*v1alpha1.IPPool
	// ips are the addresses of the pool. excluded are those that it no longer hands out: they are
	// withdrawn. leased are those with a lease of the pool, wherever they are.
	ips, excluded, leased poolset.Set
	// lost are addresses that another pool has too, and keeps.
	lost poolset.Set
}

func (p *plot) place() place {
	return place{identityOf(p.Spec.Application), p.Spec.Application.Interface, isIPv6(p.Spec.Subnet)}
}

// plots returns the pools that the controller made, the oldest first. taken are the addresses of all
// pools and their leases, by network.
func plots(f Facts) (all []*plot, taken map[string]poolset.Set) {
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
		p := &plot{IPPool: pool, leased: f.Leased[pool.Name]}
		// The rules of the CRD refuse entries that cannot be read, except a range in the wrong order,
		// which the controller never writes.
		p.ips, _ = poolset.Parse(pool.Spec.IPs)
		p.excluded, _ = poolset.Parse(pool.Spec.ExcludeIPs)
		add(p.ips)
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *plot) int {
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
func settle(all []*plot) {
	byNetwork := map[string][]*plot{}
	for _, p := range all {
		byNetwork[p.Spec.Network] = append(byNetwork[p.Spec.Network], p)
	}
	for _, plots := range byNetwork {
		sets, total := make([]poolset.Set, len(plots)), uint64(0)
		for i, p := range plots {
			sets[i], total = p.ips, total+p.ips.Len()
		}
		if poolset.Union(sets...).Len() == total {
			continue // the usual case
		}
		for i, p := range plots {
			for _, older := range plots[:i] {
				if common := p.ips.And(older.ips); common.Len() > 0 {
					p.lost = p.lost.Plus(common.Minus(p.leased))
					older.lost = older.lost.Plus(common.And(p.leased).Minus(older.leased))
				}
			}
		}
	}
}
