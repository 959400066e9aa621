package pool

import (
	"sync"
	"time"
)

const (
	// minInterval is the shortest time between two publications of one pool.
	minInterval = time.Second
	// fanOut bounds, in bytes per second, what one pool's publications cost the
	// API server: each goes to every agent.
	fanOut = 1 << 20
)

// interval is the time between two publications of a status of so many bytes.
func interval(bytes, agents int) time.Duration {
	cost := time.Duration(bytes) * time.Duration(agents) * time.Second / fanOut
	return max(minInterval, cost)
}

// pace holds publications back. Safe for concurrent use.
type pace struct {
	mu   sync.Mutex
	next map[string]time.Time
}

func newPace() *pace { return &pace{next: map[string]time.Time{}} }

// wait returns how long a pool's next publication has to wait; 0 is not at all.
func (p *pace) wait(pool string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.next[pool].Sub(now))
}

// published notes a publication of so many bytes to so many agents.
func (p *pace) published(pool string, bytes, agents int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[pool] = now.Add(interval(bytes, agents))
}

// forget drops a pool that is gone.
func (p *pace) forget(pool string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.next, pool)
}
