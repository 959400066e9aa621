// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"maps"
	"reflect"
	"sync"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/internal/foreignhost"
)

// journalEvery bounds the age of the uses in the journal: there is no write for each ADD.
const journalEvery = 10 * time.Minute

// Journal remembers the pairs across restarts. The document of the journal implements it.
type Journal interface {
	Get() (pairs []attachment.Pair, known bool)
	Put([]attachment.Pair) error
}

// Uses are the times at which the last two pods got an address of a pair; zero: no such pod. Two are
// enough, because no pair keeps more addresses ready by itself.
type Uses struct{ Last, Before time.Time }

// recent returns the number of these pods within pairLife.
func (u Uses) recent(now time.Time) (pods int) {
	for _, at := range []time.Time{u.Last, u.Before} {
		if !at.IsZero() && now.Sub(at) < pairLife {
			pods++
		}
	}
	return pods
}

// pairs holds the last uses of each pair. Safe for concurrent use.
type pairs struct {
	mu   sync.Mutex
	used map[Pair]Uses
}

func newPairs(remembered []attachment.Pair) *pairs {
	p := &pairs{used: map[Pair]Uses{}}
	for _, r := range remembered {
		p.used[Pair{r.Pool, r.Parent}] = Uses{r.Used, r.Before}
	}
	return p
}

// use records a use. more reports whether more addresses may be kept ready now than before.
func (p *pairs) use(pair Pair, now time.Time) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.used[pair]
	is := Uses{Last: now, Before: was.Last}
	p.used[pair] = is
	return is.recent(now) > was.recent(now)
}

func (p *pairs) all() map[Pair]Uses {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.used)
}

// save writes the pairs to the journal if the journal is too far behind. It forgets the pairs that
// are no longer kept warm. An ADD never waits for save.
func (p *pairs) save(j Journal, now time.Time) error {
	journalled, _ := j.Get()
	next, behind := p.compare(journalled, now)
	if !behind {
		return nil
	}
	return j.Put(next)
}

// compare returns the pairs to write, and whether the journal is too far behind.
func (p *pairs) compare(journalled []attachment.Pair, now time.Time) (next []attachment.Pair, behind bool) {
	written := map[Pair]time.Time{}
	for _, w := range journalled {
		written[Pair{w.Pool, w.Parent}] = w.Used
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.used, func(_ Pair, u Uses) bool { return u.recent(now) == 0 })
	behind = len(written) != len(p.used)
	next = make([]attachment.Pair, 0, len(p.used))
	for pair, u := range p.used {
		last, known := written[pair]
		behind = behind || !known || u.Last.Sub(last) >= journalEvery
		next = append(next, attachment.Pair{Pool: pair.Pool, Parent: pair.Parent, Used: u.Last, Before: u.Before})
	}
	return next, behind
}

// pause is the time in which no lease is created for a pair.
type pause struct {
	until time.Time
	// params of the pool then. The pause ends when they change: ignoreMACs may name the host.
	params segment.ProbeParams
}

// pause stops the creation of leases for a pair for foreignhost.Interval. Otherwise a host that answers
// for each address would make the keeper create and release leases without end.
func (k *Keeper) pause(p Pair, params segment.ProbeParams) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused[p] = pause{k.Clock.Now().Add(foreignhost.Interval), params}
}

// isPaused reports whether no lease may be created for a pair whose pool has these parameters.
func (k *Keeper) isPaused(p Pair, params segment.ProbeParams) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, ok := k.paused[p]
	if !ok {
		return false
	}
	if k.Clock.Now().Before(now.until) && reflect.DeepEqual(now.params, params) {
		return true
	}
	delete(k.paused, p)
	return false
}
