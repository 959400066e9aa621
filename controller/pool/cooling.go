// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"slices"
	"time"
)

// cool records that an address was freed. For one cooldown after a fail-over, the bitmap of the new
// leader shows such addresses free. That is safe, because a freed address was fenced or proven silent
// before; only neighbour caches may be stale.
func (n *notes) cool(pool string, a netip.Addr, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of(pool).freed[a] = now
}

// cooling returns the sorted addresses of a pool that still cool down, and the time until the first of
// them has cooled down. The time is zero if there are none.
func (n *notes) cooling(pool string, cooldown time.Duration, now time.Time) (addrs []netip.Addr, next time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.of(pool).freed
	for a, freed := range all {
		over := freed.Add(cooldown)
		if !now.Before(over) {
			delete(all, a)
			continue
		}
		addrs = append(addrs, a)
		if next.IsZero() || over.Before(next) {
			next = over
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs, next
}
