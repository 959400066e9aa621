package pool

import (
	"sync"
	"time"
)

// fewerGrace is how long there have to be fewer agents before a pool says so. An
// agent that is replaced is away for a minute; where the other one were told that
// it is alone, it would take silence for proof without having heard anybody (R2).
const fewerGrace = 10 * time.Minute

// fewer remembers since when there are fewer agents than pools say. A new leader
// begins anew, so it says so later, never earlier. Safe for concurrent use.
type fewer struct {
	mu    sync.Mutex
	since map[string]time.Time
}

func newFewer() *fewer { return &fewer{since: map[string]time.Time{}} }

// agents returns how many a pool is to tell of, which said so many at last, and
// how long until that may be fewer; 0 where nothing is to be waited for.
func (f *fewer) agents(pool string, said, counted int, now time.Time) (agents int, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if counted >= said {
		delete(f.since, pool)
		return counted, 0
	}
	since, seen := f.since[pool]
	if !seen {
		since = now
		f.since[pool] = since
	}
	if wait = since.Add(fewerGrace).Sub(now); wait > 0 {
		return said, wait
	}
	return counted, 0
}

// forget drops a pool that is gone.
func (f *fewer) forget(pool string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.since, pool)
}
