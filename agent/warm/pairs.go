package warm

import (
	"maps"
	"sync"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
)

// journalEvery is how much older the journal may take the last use of a pair
// to be than it is: each ADD is a use, and the disk is not to be written for each.
const journalEvery = 10 * time.Minute

// Journal remembers the pairs across restarts. *journal.Journal implements it.
type Journal interface {
	Pairs() []journal.Pair
	PutPairs([]journal.Pair) error
}

// pairs are the pairs that pods of this node use, by when they last did. Safe
// for concurrent use.
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

// use notes a use, and tells whether the pair is news.
func (p *pairs) use(pair Pair, now time.Time) (news bool) {
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

// save journals the pairs if the journal is too far behind, and forgets those
// that are not kept warm any more. No use waits for the disk.
func (p *pairs) save(j Journal, now time.Time) error {
	next, behind := p.beside(j.Pairs(), now)
	if !behind {
		return nil
	}
	return j.PutPairs(next)
}

// beside compares the pairs with those that are written.
func (p *pairs) beside(journalled []journal.Pair, now time.Time) (next []journal.Pair, behind bool) {
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
