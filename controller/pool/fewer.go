// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"sync"
	"time"
)

// fewerGrace is the time for which there must be fewer agents before a pool publishes the lower number.
// The replacement of an agent takes a minute. If the pool published during this minute that the other
// agent is alone, that agent would accept silence as proof although it has heard no other agent (R2).
const fewerGrace = 10 * time.Minute

// fewer has the pools that publish more agents than there are. It is in memory only, so a new leader
// publishes the lower number later, never earlier. fewer is safe for concurrent use.
type fewer struct {
	mu    sync.Mutex
	pools map[string]*shortfall
}

// shortfall begins with the first pass that counts fewer agents than a pool publishes.
type shortfall struct {
	said  int
	since time.Time
	// most is the greatest count since then. An agent that disappears later has its own grace.
	most int
}

func newFewer() *fewer { return &fewer{pools: map[string]*shortfall{}} }

// agents returns the number of agents that a pool publishes, and the time until the number may be
// lower; 0 means that there is nothing to wait for.
func (f *fewer) agents(pool string, said, counted int, now time.Time) (agents int, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if counted >= said {
		delete(f.pools, pool)
		return counted, 0
	}
	s := f.pools[pool]
	// The pool has published the lower number, perhaps without a pass in between.
	if s == nil || s.said != said {
		s = &shortfall{said: said, since: now}
		f.pools[pool] = s
	}
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

// forget removes a pool that is gone.
func (f *fewer) forget(pool string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pools, pool)
}
