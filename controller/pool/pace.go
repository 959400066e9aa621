package pool

import (
	"sync"
	"time"
)

const (
	// minInterval is the shortest time between two looks at one pool.
	minInterval = time.Second
	// fanOut bounds, in bytes per second, what one pool's publications cost the
	// API server, for each goes to every agent; totalFanOut what those of all cost.
	fanOut, totalFanOut = 1 << 20, 32 << 20
	// recordSize is what a pool weighs on the wire beside its bitmap, in bytes.
	recordSize = 3 << 10
	// urgentAhead is for how many publications an urgent one goes ahead of the
	// pace. Those after it make up for that, so that a pool whose state flaps
	// costs no more than any other.
	urgentAhead = 4
)

// interval is the time that a publication with a bitmap of so many bytes uses
// up, while so many pools have something to publish.
func interval(bytes, agents, pools int) time.Duration {
	share := min(fanOut, totalFanOut/max(1, pools))
	cost := time.Duration(recordSize+bytes) * time.Duration(agents) * time.Second / time.Duration(share)
	return max(minInterval, cost)
}

// pace holds looks at pools, and publications, back. Safe for concurrent use.
type pace struct {
	mu    sync.Mutex
	pools map[string]*turns
}

// turns are when a pool's next look, publication and urgent publication may be.
type turns struct{ look, ordinary, urgent time.Time }

func newPace() *pace { return &pace{pools: map[string]*turns{}} }

// look returns how long the next look at a pool has to wait. 0 is not at all,
// and the look is noted.
func (p *pace) look(pool string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.of(pool)
	if now.Before(t.look) {
		return t.look.Sub(now)
	}
	t.look = now.Add(minInterval)
	return 0
}

// wait returns how long a pool's next publication has to wait; 0 is not at all.
func (p *pace) wait(pool string, urgent bool, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.of(pool)
	if urgent {
		return max(0, t.urgent.Sub(now))
	}
	return max(0, t.ordinary.Sub(now))
}

// published notes a publication with a bitmap of so many bytes to so many agents.
func (p *pace) published(pool string, bytes, agents int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, cost := p.of(pool), interval(bytes, agents, p.busy(now))
	if t.ordinary.Before(now) {
		t.ordinary = now
	}
	t.ordinary = t.ordinary.Add(cost)
	t.urgent = t.ordinary.Add(-urgentAhead * cost)
}

// forget drops a pool that is gone.
func (p *pace) forget(pool string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pools, pool)
}

// busy counts the pools that have published of late and wait for their turn.
func (p *pace) busy(now time.Time) int {
	n := 0
	for _, t := range p.pools {
		if now.Before(t.ordinary) {
			n++
		}
	}
	return n
}

func (p *pace) of(pool string) *turns {
	t := p.pools[pool]
	if t == nil {
		t = &turns{}
		p.pools[pool] = t
	}
	return t
}
