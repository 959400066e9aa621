// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// cooling has the addresses that were freed a moment ago. It is in memory only. For one cooldown after
// a fail-over, the bitmap of the new leader therefore shows such addresses free. That is safe, because
// a freed address was fenced or proven silent before; only neighbour caches may be stale. cooling is
// safe for concurrent use.
type cooling struct {
	mu sync.Mutex
	// freed has the time at which each address of a pool was freed.
	freed map[string]map[netip.Addr]time.Time
}

func newCooling() *cooling {
	return &cooling{freed: map[string]map[netip.Addr]time.Time{}}
}

// add records that an address was freed.
func (c *cooling) add(pool string, a netip.Addr, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.freed[pool] == nil {
		c.freed[pool] = map[netip.Addr]time.Time{}
	}
	c.freed[pool][a] = now
}

// of returns the sorted addresses of a pool that still cool down, and the time until the first of them
// has cooled down. The time is zero if there are none.
func (c *cooling) of(pool string, cooldown time.Duration, now time.Time) (addrs []netip.Addr, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a, freed := range c.freed[pool] {
		over := freed.Add(cooldown)
		if !now.Before(over) {
			delete(c.freed[pool], a)
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

// forget removes a pool that is gone.
func (c *cooling) forget(pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.freed, pool)
}
