// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// recordFirst and recordMost bound the pause between two records of the conflicts of one address.
	// The pause doubles with each record, whichever host speaks.
	recordFirst = 10 * time.Second
	recordMost  = 10 * time.Minute
	// recordForget ends the pauses of an address that had no conflict for this long.
	recordForget = 2 * recordMost
	// recordRate bounds the records of this node per second, recordBurst the records at once. All
	// agents share one queue at the API server, and the ADDs of other nodes wait there too. A
	// hostile segment must not fill it.
	recordRate, recordBurst = 1, 16
)

// pace decides which conflicts are recorded at the API server. The metric and the audit log have
// every conflict. Safe for concurrent use.
type pace struct {
	clock clock.PassiveClock
	node  flowcontrol.PassiveRateLimiter

	mu     sync.Mutex
	leases map[string]paced
	swept  time.Time
}

// paced is the state of one address.
type paced struct {
	records   int
	due, last time.Time
}

func newPace(c clock.PassiveClock) *pace {
	return &pace{
		clock: c, node: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(recordRate, recordBurst, c),
		leases: map[string]paced{},
	}
}

// allow reports whether a conflict of a lease is to be recorded now. If so, it counts the record.
func (p *pace) allow(lease string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	p.sweep(now)
	l := p.leases[lease]
	l.last = now
	defer func() { p.leases[lease] = l }()
	if now.Before(l.due) || !p.node.TryAccept() {
		return false
	}
	l.records++
	l.due = now.Add(loop.Pause(recordFirst, recordMost, l.records))
	return true
}

// sweep forgets addresses without a conflict for recordForget, so the map stays small.
func (p *pace) sweep(now time.Time) {
	if now.Sub(p.swept) < recordFirst {
		return
	}
	p.swept = now
	maps.DeleteFunc(p.leases, func(_ string, l paced) bool { return now.Sub(l.last) >= recordForget })
}
