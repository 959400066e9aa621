package pool

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// cooling remembers addresses that were freed a moment ago. It lives in memory:
// a new leader starts without, so for one cooldown after a fail-over the bitmap
// shows such addresses free. That costs nothing but warm neighbour caches, since
// a freed address was fenced or proven silent before. Safe for concurrent use.
type cooling struct {
	mu sync.Mutex
	// freed is when each address of a pool was freed.
	freed map[string]map[netip.Addr]time.Time
}

func newCooling() *cooling {
	return &cooling{freed: map[string]map[netip.Addr]time.Time{}}
}

// add notes that an address was freed.
func (c *cooling) add(pool string, a netip.Addr, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.freed[pool] == nil {
		c.freed[pool] = map[netip.Addr]time.Time{}
	}
	c.freed[pool][a] = now
}

// of returns the addresses of a pool that are still within its cooldown, in
// order, and when the next of them is over; zero if there are none.
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

// forget drops a pool that is gone.
func (c *cooling) forget(pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.freed, pool)
}
