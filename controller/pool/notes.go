// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
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

const (
	// minInterval is the shortest time between two passes over one pool.
	minInterval = time.Second
	// fanOut is the greatest rate, in bytes per second, at which the API server sends the
	// publications of one pool to all agents. totalFanOut is the rate for all pools together.
	fanOut, totalFanOut = 1 << 20, 32 << 20
	// recordSize is the size of a pool on the wire without its bitmap, in bytes.
	recordSize = 3 << 10
	// entryInterval is the interval between publications for each entry of ips and excludeIPs. The API
	// server validates all of them at each write of the status, in about 60 µs each.
	entryInterval = 600 * time.Microsecond
	// urgentAhead is the number of publications by which an urgent one may be early. Later
	// publications wait for longer, so that a pool whose state flaps costs no more than another.
	urgentAhead = 4
)

// size is the size of a publication: the bytes of the bitmap, and the number of entries of the pool.
type size struct{ bytes, entries int }

func sizeOf(pool *v1alpha1.IPPool) size {
	return size{len(pool.Status.InUse), len(pool.Spec.IPs) + len(pool.Spec.ExcludeIPs)}
}

// interval returns the time between publications of the given size, while the given number of pools
// have something to publish. An entry has 16 bytes on the wire.
func interval(s size, agents, pools int) time.Duration {
	share := min(fanOut, totalFanOut/max(1, pools))
	cost := time.Duration(recordSize+s.bytes+16*s.entries) * time.Duration(agents) * time.Second / time.Duration(share)
	return max(minInterval, cost, time.Duration(s.entries)*entryInterval)
}

// look returns the time for which the next pass over a pool must wait. If it is 0, the pass may begin
// and is recorded.
func (n *notes) look(pool string, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &n.of(pool).turns
	if now.Before(t.look) {
		return t.look.Sub(now)
	}
	t.look = now.Add(minInterval)
	return 0
}

// wait returns the time for which a pool's next publication must wait.
func (n *notes) wait(pool string, urgent bool, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &n.of(pool).turns
	if urgent {
		return max(0, t.urgent.Sub(now))
	}
	return max(0, t.ordinary.Sub(now))
}

// published records a publication of the given size to the given number of agents.
func (n *notes) published(pool string, s size, agents int, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, cost := &n.of(pool).turns, interval(s, agents, n.busy(now))
	if t.ordinary.Before(now) {
		t.ordinary = now
	}
	t.ordinary = t.ordinary.Add(cost)
	t.urgent = t.ordinary.Add(-urgentAhead * cost)
}

// busy returns the number of pools that published a short time ago and wait for their turn.
func (n *notes) busy(now time.Time) int {
	busy := 0
	for _, of := range n.pools {
		if now.Before(of.turns.ordinary) {
			busy++
		}
	}
	return busy
}
