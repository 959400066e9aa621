package pool

import (
	"sync"
	"time"
)

// fewerGrace is how long there have to be fewer agents before a pool says so. An
// agent that is replaced is away for a minute; where the other one were told that
// it is alone, it would take silence for proof without having heard anybody (R2).
const fewerGrace = 10 * time.Minute

// fewer remembers the pools that say more agents than there are. A new leader
// begins anew, so it says so later, never earlier. Safe for concurrent use.
type fewer struct {
	mu    sync.Mutex
	pools map[string]*shortfall
}

// shortfall begins with the first look that counts fewer agents than a pool said.
type shortfall struct {
	said  int
	since time.Time
	// most were counted at once since then: one that has gone later has its own time.
	most int
}

func newFewer() *fewer { return &fewer{pools: map[string]*shortfall{}} }

// agents returns how many a pool is to tell of, which said so many at last, and
// how long until that may be fewer; 0 where nothing is to be waited for.
func (f *fewer) agents(pool string, said, counted int, now time.Time) (agents int, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if counted >= said {
		delete(f.pools, pool)
		return counted, 0
	}
	s := f.pools[pool]
	// What the pool said before was written since, maybe without a look in between.
	if s == nil || s.said != said {
		s = &shortfall{said: said, since: now}
		f.pools[pool] = s
	}
	s.most = max(s.most, counted)
	if wait := s.since.Add(fewerGrace).Sub(now); wait > 0 {
		return said, wait
	}
	if counted < s.most {
		// The time of the others begins once this is written.
		return s.most, minInterval
	}
	return s.most, 0
}

// forget drops a pool that is gone.
func (f *fewer) forget(pool string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pools, pool)
}
