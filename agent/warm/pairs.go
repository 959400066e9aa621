// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"maps"
	"sync"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
)

// journalEvery bounds the age of the last uses in the journal. Each ADD is a use, and the agent
// must not write to the disk for each.
const journalEvery = 10 * time.Minute

// Journal remembers the pairs across restarts. *journal.Journal implements it.
type Journal interface {
	Pairs() []journal.Pair
	PutPairs([]journal.Pair) error
}

// pairs holds the time of the last use of each pair. Safe for concurrent use.
type pairs struct {
	mu   sync.Mutex
	used map[Pair]time.Time
}

func newPairs(remembered []journal.Pair) *pairs {
	p := &pairs{used: map[Pair]time.Time{}}
	for _, r := range remembered {
		p.used[Pair{r.Pool, r.Parent}] = r.Used
	}
	return p
}

// use records a use. isNew reports whether the pair was not kept warm before.
func (p *pairs) use(pair Pair, now time.Time) (isNew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.used[pair]
	p.used[pair] = now
	return !known || now.Sub(last) >= pairLife
}

func (p *pairs) all() map[Pair]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.used)
}

// save writes the pairs to the journal if the journal is too far behind. It forgets the pairs that
// are no longer kept warm. An ADD never waits for save.
func (p *pairs) save(j Journal, now time.Time) error {
	next, behind := p.compare(j.Pairs(), now)
	if !behind {
		return nil
	}
	return j.PutPairs(next)
}

// compare returns the pairs to write, and whether the journal is too far behind.
func (p *pairs) compare(journalled []journal.Pair, now time.Time) (next []journal.Pair, behind bool) {
	written := map[Pair]time.Time{}
	for _, w := range journalled {
		written[Pair{w.Pool, w.Parent}] = w.Used
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.used, func(_ Pair, used time.Time) bool { return now.Sub(used) >= pairLife })
	behind = len(written) != len(p.used)
	next = make([]journal.Pair, 0, len(p.used))
	for pair, used := range p.used {
		last, known := written[pair]
		behind = behind || !known || used.Sub(last) >= journalEvery
		next = append(next, journal.Pair{Pool: pair.Pool, Parent: pair.Parent, Used: used})
	}
	return next, behind
}
