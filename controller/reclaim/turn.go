// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// takenPerSecond bounds the addresses that the controller takes in a second, once takenAtOnce have been taken.
	// A zone of 1 000 nodes with 20 000 addresses has had its turn after 95 s. An address costs the API servers 11 ms
	// of CPU. Without a bound, as many were taken as the processors could do, and a create of others took 25 ms
	// instead of 5 ms meanwhile.
	takenPerSecond = 200
	takenAtOnce    = 1000
	// turnPeriod is the time between turns, if leases wait.
	turnPeriod = 100 * time.Millisecond
)

// turns bounds the rate at which addresses are taken from their holders, so that the loss of many nodes leaves room
// for ADDs. The pools take turns: a small one does not wait for a large one. Safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	limiter *rate.Limiter
	// order has the pools with leases that wait, the next one first; waiting has these leases by pool.
	order   []string
	waiting map[string][]string
	// asked has the leases that wait, and whether their turn has come.
	asked map[string]bool
	wake  loop.Wake
}

func newTurns() *turns {
	return &turns{
		limiter: rate.NewLimiter(takenPerSecond, takenAtOnce), waiting: map[string][]string{}, asked: map[string]bool{}, wake: loop.NewWake(),
	}
}

// take reports whether the turn of a lease has come. Otherwise the lease waits, and due returns it.
func (t *turns) take(pool, lease string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	hasCome, isKnown := t.asked[lease]
	switch {
	case hasCome:
		delete(t.asked, lease)
		return true
	case isKnown:
		return false
	case len(t.order) == 0 && t.limiter.AllowN(now, 1):
		return true
	}
	if len(t.waiting[pool]) == 0 {
		t.order = append(t.order, pool)
	}
	t.waiting[pool] = append(t.waiting[pool], lease)
	t.asked[lease] = false
	t.wake.Up()
	return false
}

// forget forgets a lease that is gone. If it waits, due returns it nevertheless.
func (t *turns) forget(lease string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.asked, lease)
}

// due returns the leases whose turn has come, and the pause until the next one; 0 if no lease waits.
func (t *turns) due(now time.Time) (leases []string, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.order) > 0 {
		if !t.limiter.AllowN(now, 1) {
			return leases, turnPeriod
		}
		pool := t.order[0]
		lease := t.waiting[pool][0]
		t.order, t.waiting[pool] = t.order[1:], t.waiting[pool][1:]
		if len(t.waiting[pool]) > 0 {
			t.order = append(t.order, pool)
		} else {
			delete(t.waiting, pool)
		}
		if _, ok := t.asked[lease]; ok {
			t.asked[lease] = true
		}
		leases = append(leases, lease)
	}
	return leases, 0
}

// size returns how many leases wait.
func (t *turns) size() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, leases := range t.waiting {
		n += len(leases)
	}
	return n
}
