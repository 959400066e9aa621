// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// notes has the facts about the pools that the reconciler keeps between two passes. A new leader starts without
// notes. Safe for concurrent use.
type notes struct {
	mu    sync.Mutex
	pools map[string]*note
}

// note is the memory of one pool.
type note struct {
	// freed has the time at which each address was freed that cools down.
	freed map[netip.Addr]time.Time
	// turns are the earliest times of the next pass, publication and urgent publication.
	turns struct{ look, ordinary, urgent time.Time }
	// fewer is nil while there are as many agents as the pool publishes.
	fewer *shortfall
}

func newNotes() *notes { return &notes{pools: map[string]*note{}} }

// of returns the note about a pool. The caller holds mu.
func (n *notes) of(pool string) *note {
	if n.pools[pool] == nil {
		n.pools[pool] = &note{freed: map[netip.Addr]time.Time{}}
	}
	return n.pools[pool]
}

// forget removes a pool that is gone.
func (n *notes) forget(pool string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pools, pool)
}

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

// fewerGrace is the time for which there must be fewer agents before a pool publishes the lower number.
// The replacement of an agent takes a minute. If the pool published during this minute that the other
// agent is alone, that agent would accept silence as proof although it has heard no other agent (R2).
const fewerGrace = 10 * time.Minute

// shortfall begins with the first pass that counts fewer agents than a pool publishes. A new leader
// publishes the lower number later, never earlier.
type shortfall struct {
	said  int
	since time.Time
	// most is the greatest count since then. An agent that disappears later has its own grace.
	most int
}

// agents returns the number of agents that a pool publishes, and the time until the number may be
// lower; 0 means that there is nothing to wait for.
func (n *notes) agents(pool string, said, counted int, now time.Time) (agents int, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	note := n.of(pool)
	if counted >= said {
		note.fewer = nil
		return counted, 0
	}
	// The pool has published the lower number, perhaps without a pass in between.
	if note.fewer == nil || note.fewer.said != said {
		note.fewer = &shortfall{said: said, since: now}
	}
	s := note.fewer
	s.most = max(s.most, counted)
	if wait := s.since.Add(fewerGrace).Sub(now); wait > 0 {
		return said, wait
	}
	if counted < s.most {
		// The grace of the other agents begins after this write.
		return s.most, minInterval
	}
	return s.most, 0
}
