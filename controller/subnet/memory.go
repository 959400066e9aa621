// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// memory is the memory of one leader. A new leader begins anew, and so waits longer.
type memory struct {
	// withdrawn has, for each excluded address of a pool, the time of the first look that saw it.
	withdrawn map[string]map[netip.Addr]time.Time
	// carving has, for each pool, the time of the first look that saw its entry of status.carving.
	carving map[string]seen
	// published has the time of the last write of a status.
	published map[string]time.Time
	// unpublished is true if counts wait for their time.
	unpublished bool
	// told has the message that an application was told last.
	told map[string]string
	// made are the pools of IPSubnets, for the events of leases.
	made atomic.Pointer[map[string]bool]
}

// seen is a value, and the time since which it has not changed.
type seen struct {
	value string
	since time.Time
}

// see notes the withdrawn addresses and the entries of status.carving.
func (m *memory) see(f Facts, now time.Time) {
	if m.published == nil {
		m.published, m.told = map[string]time.Time{}, map[string]string{}
	}
	withdrawn, made := map[string]map[netip.Addr]time.Time{}, map[string]bool{}
	for i := range f.Pools {
		pool := &f.Pools[i]
		if !isMade(*pool) {
			continue
		}
		made[pool.Name] = true
		excluded, err := poolset.Parse(pool.Spec.ExcludeIPs)
		if err != nil || excluded.Len() == 0 {
			continue
		}
		withdrawn[pool.Name] = map[netip.Addr]time.Time{}
		for n := range min(excluded.Len(), maxWithdrawn) {
			addr := excluded.At(n)
			since, ok := m.withdrawn[pool.Name][addr]
			if !ok {
				since = now
			}
			withdrawn[pool.Name][addr] = since
		}
	}
	m.withdrawn = withdrawn
	m.made.Store(&made)
	carving := map[string]seen{}
	for i := range f.Subnets {
		for _, c := range f.Subnets[i].Status.Carving {
			value := strings.Join(c.IPs, ",")
			old, ok := m.carving[c.Pool]
			if !ok || old.value != value {
				old = seen{value, now}
			}
			carving[c.Pool] = old
		}
	}
	m.carving = carving
}

// maxWithdrawn bounds the addresses of a pool that are given back at a time.
const maxWithdrawn = 4096

// settled returns the addresses that were withdrawn long enough ago, and the pools with an entry in
// status.carving that is old enough.
func (m *memory) settled(now time.Time, after time.Duration) (map[string]poolset.Set, map[string]bool) {
	settled, expired := map[string]poolset.Set{}, map[string]bool{}
	for pool, addresses := range m.withdrawn {
		var old []string
		for addr, since := range addresses {
			if now.Sub(since) >= after {
				old = append(old, addr.String())
			}
		}
		settled[pool], _ = poolset.Parse(old) // addresses can be read
	}
	for pool, s := range m.carving {
		if now.Sub(s.since) >= after {
			expired[pool] = true
		}
	}
	return settled, expired
}

// hasMade reports whether the controller made the pool of a lease.
func (m *memory) hasMade(lease *v1alpha1.IPLease) bool {
	made := m.made.Load()
	return made != nil && (*made)[lease.Spec.Pool]
}

// forget drops the IPSubnets that are gone.
func (m *memory) forget(p Plan, forgotten func(string)) {
	for name := range m.published {
		if p.Grounds[name] == nil {
			delete(m.published, name)
			forgotten(name)
		}
	}
}
