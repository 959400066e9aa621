// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/poolset"
)

const (
	// patience is the time that the controller has to answer a wait. After it, the agent lists the leases of the
	// pool itself, and then, while there is no answer, about every listEvery. Each is up to a half longer, so that
	// agents do not list together.
	patience  = 5 * time.Second
	listEvery = 15 * time.Second
	// listTimeout bounds a list.
	listTimeout = 10 * time.Second
	// lostRetry is the pause before an address is offered again after its lease could not be created. By then, the
	// controller no longer tells of an address that has a lease.
	lostRetry = time.Second
)

// room is a pool, or some addresses of one, for which ADDs wait. The lock of the Queue protects it.
//
// No address that comes free is missed. The controller answers a wait after a look at all leases of the pool, so it
// tells of an address that came free before; each later end of a lease reaches it while it knows of the wait. What
// came free between the list by which an ADD found the pool full and the write of the wait is among the former. The
// agent does not trust the answer for long: it asks again about every 40 s (see watch.Hints), and lists the leases
// of the pool itself while a question is unanswered.
type room struct {
	queue *Queue
	// key is that of the room; pool and only are what the ADDs want.
	key, pool string
	only      []string
	set       poolset.Set
	// agents is the number of agents that may compete for an address that this one has found by itself.
	agents int
	// places is the number of ADDs that wait for the pool, or try an address of it.
	places int
	close  context.CancelFunc
	// asked is the time since which the controller owes an answer. It is zero after the answer.
	asked time.Time
	// heard: the controller has answered since the room was made. Before, it tells what it told an earlier wait, and
	// the lease of that may be too young for it.
	heard bool
	// told has the addresses without a lease of which the controller tells.
	told map[netip.Addr]news
	// vacant has addresses of set that may be offered.
	vacant map[netip.Addr]vacancy
	// offered are the addresses that an ADD tries now.
	offered map[netip.Addr]struct{}
}

// news is what the controller tells of an address.
type news struct {
	version string
	// tried: it was offered since.
	tried bool
}

// open makes a room. The caller holds the lock.
func (q *Queue) open(key string, p Pool) *room {
	ctx, end := context.WithCancel(q.Background)
	r := &room{
		queue: q, key: key, pool: p.Name, close: end, asked: q.Clock.Now(),
		told: map[netip.Addr]news{}, vacant: map[netip.Addr]vacancy{}, offered: map[netip.Addr]struct{}{},
	}
	for _, addr := range p.Only {
		r.only = append(r.only, addr.String())
	}
	q.rooms[key] = r
	go r.audit(ctx)
	return r
}

// audit lists the leases of the pool while the controller does not answer, until ctx ends.
func (r *room) audit(ctx context.Context) {
	q := r.queue
	longer := func(d time.Duration) time.Duration { return d + time.Duration(q.Rand()*float64(d/2)) }
	audits := loop.Loop{Clock: q.Clock, Period: longer(patience), Later: true, Failed: func(err error) {
		q.Log.Info("the leases of a pool for which ADDs wait cannot be listed", "pool", r.pool, "why", err.Error())
	}}
	_ = audits.Pace(ctx, func(ctx context.Context) (time.Duration, error) { // it ends with ctx
		if !r.isUnanswered() {
			return 0, nil
		}
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		taken, err := q.Leases.TakenIn(ctx, r.pool)
		if err == nil {
			q.Log.Info("the controller does not say which addresses of a pool come free; the agent has listed its leases itself", "pool", r.pool, "leases", len(taken))
			r.listed(ctx, taken)
		}
		return longer(listEvery), err
	})
}

// isUnanswered reports whether the patience has ended.
func (r *room) isUnanswered() bool {
	r.queue.mu.Lock()
	defer r.queue.mu.Unlock()
	return !r.asked.IsZero() && r.queue.Clock.Since(r.asked) >= patience
}

// listed makes addresses vacant that a list of the leases lacks, up to as many as ADDs may wait. Agents that list
// at the same time begin at different addresses.
func (r *room) listed(ctx context.Context, taken map[netip.Addr]struct{}) {
	r.queue.mu.Lock()
	defer r.queue.mu.Unlock()
	if ctx.Err() != nil {
		return // the room is closed
	}
	for addr := range taken {
		delete(r.vacant, addr)
	}
	// Each address that is skipped is in one of the maps, so the walk is short in a large pool too.
	n, now := r.set.Len(), r.queue.Clock.Now()
	for i, first := uint64(0), uint64(r.queue.Rand()*float64(n)); i < n && len(r.vacant) < Most; i++ {
		addr := r.set.At((first + i) % n)
		_, leased := taken[addr]
		if !leased && r.isNew(addr) {
			r.vacate(addr, now, r.agents)
		}
	}
	r.queue.dispatch()
}

// hear takes what the controller tells. free has addresses and versions.
func (r *room) hear(answered bool, free map[netip.Addr]string) {
	switch {
	case answered:
		r.asked, r.heard = time.Time{}, true
	case r.asked.IsZero():
		r.asked = r.queue.Clock.Now()
	}
	if !r.heard {
		return
	}
	maps.DeleteFunc(r.told, func(addr netip.Addr, _ news) bool {
		_, still := free[addr]
		if !still {
			delete(r.vacant, addr)
		}
		return !still
	})
	for addr, version := range free {
		was, known := r.told[addr]
		if known && was.version == version {
			continue
		}
		r.told[addr] = news{version: version}
		if known { // the ADD that tried it did not get it, or has given it back
			delete(r.offered, addr)
			delete(r.vacant, addr)
		}
	}
	r.look()
}

// look makes the addresses vacant of which the controller tells and that no ADD has tried. An address may be told
// before this agent knows that it is in the pool.
func (r *room) look() {
	maps.DeleteFunc(r.vacant, func(addr netip.Addr, _ vacancy) bool { return !r.set.Contains(addr) })
	for addr, n := range r.told {
		if !n.tried && r.isNew(addr) && r.set.Contains(addr) {
			r.vacate(addr, r.queue.Clock.Now(), 1) // the controller tells one node at a time
		}
	}
}

// isNew reports whether an address is neither vacant nor tried now.
func (r *room) isNew(addr netip.Addr) bool {
	_, tried := r.offered[addr]
	_, known := r.vacant[addr]
	return !tried && !known
}

// vacate notes that an address has no lease. agents may compete for it.
func (r *room) vacate(addr netip.Addr, since time.Time, agents int) {
	r.vacant[addr] = vacancy{room: r.key, addr: addr, since: since, agents: agents, luck: r.queue.Rand()}
}

// offer hands an address to an ADD.
func (r *room) offer(addr netip.Addr) {
	delete(r.vacant, addr)
	r.offered[addr] = struct{}{}
	if n, told := r.told[addr]; told {
		r.told[addr] = news{n.version, true}
	}
}

// takeBack ends an offer. If the ADD did not get the address, and the controller still tells of it, it is offered
// again after a moment.
func (r *room) takeBack(addr netip.Addr, served bool) {
	if _, tried := r.offered[addr]; !tried {
		return // the controller has told its end
	}
	delete(r.offered, addr)
	if _, told := r.told[addr]; told && !served && r.set.Contains(addr) {
		r.vacate(addr, r.queue.Clock.Now().Add(lostRetry), 1)
	}
}

// describe says that the pool is full, for the error of an ADD.
func (r *room) describe() string {
	n := r.set.Len()
	if len(r.only) > 0 {
		return fmt.Sprintf("it is exhausted for this pod, %d of the %d addresses that it may have have a lease", n-min(n, uint64(len(r.vacant))), n)
	}
	return fmt.Sprintf("it is exhausted, %d of its %d addresses have a lease", n-min(n, uint64(len(r.vacant))), n)
}
