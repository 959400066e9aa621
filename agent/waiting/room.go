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
	// retryFirst and retryMost bound the pause before a watch is opened again.
	retryFirst, retryMost = 100 * time.Millisecond, 2 * time.Second
	// lostRetry is the pause before an address is offered again after its lease could not be
	// created. A lease that the watch shows by then ends the offer.
	lostRetry = time.Second
)

// room is a pool for which ADDs wait. The lock of the Queue protects it.
type room struct {
	queue *Queue
	pool  string
	set   poolset.Set
	// agents is the number of agents that may compete for an address.
	agents int
	// places is the number of ADDs that wait for the pool, or try an address of it.
	places int
	close  context.CancelFunc
	// synced is true while the watch is open. taken has the addresses that have a lease.
	synced bool
	taken  map[netip.Addr]struct{}
	// vacant has addresses of set without a lease. more is true if there may be others.
	vacant map[netip.Addr]vacancy
	more   bool
	// offered are the addresses that an ADD tries now.
	offered map[netip.Addr]struct{}
}

// open begins to watch a pool. The caller holds the lock.
func (q *Queue) open(p Pool) *room {
	ctx, end := context.WithCancel(q.Background)
	r := &room{
		queue: q, pool: p.Name, close: end,
		taken: map[netip.Addr]struct{}{}, vacant: map[netip.Addr]vacancy{}, offered: map[netip.Addr]struct{}{},
	}
	q.rooms[p.Name] = r
	go r.follow(ctx)
	return r
}

// follow keeps the watch open until ctx ends. Each new watch begins with a list.
func (r *room) follow(ctx context.Context) {
	tries := loop.Backoff{First: retryFirst, Most: retryMost}
	for ctx.Err() == nil {
		began := r.queue.Clock.Now()
		err := r.queue.Leases.Follow(ctx, r.pool, news{room: r, ctx: ctx})
		if ctx.Err() != nil {
			return
		}
		if r.queue.Clock.Since(began) > retryMost {
			tries.Reset()
		}
		r.queue.mu.Lock()
		r.synced = false
		r.queue.mu.Unlock()
		pause := tries.Next()
		if tries.IsNew(err) {
			r.queue.Log.Info("the watch for an address that comes free has ended; opening it again", "pool", r.pool, "why", err.Error())
		}
		loop.For(ctx, r.queue.Clock, pause, nil)
	}
}

// news passes the news of one watch to its room.
type news struct {
	*room
	ctx context.Context
}

// Listed implements News.
func (n news) Listed(taken map[netip.Addr]struct{}) {
	q := n.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if n.ctx.Err() != nil {
		return // the room is closed
	}
	n.synced, n.taken = true, taken
	n.scan()
	q.dispatch()
}

// Changed implements News.
func (n news) Changed(addr netip.Addr, leased bool) {
	q := n.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if n.ctx.Err() != nil {
		return
	}
	if leased {
		n.taken[addr] = struct{}{}
		delete(n.vacant, addr)
		return
	}
	delete(n.taken, addr)
	delete(n.offered, addr) // the ADD that tried it did not get it, or has given it back
	if n.set.Contains(addr) {
		n.vacate(addr, q.Clock.Now())
		q.dispatch()
	}
}

// vacate notes that an address has no lease.
func (r *room) vacate(addr netip.Addr, since time.Time) {
	r.vacant[addr] = vacancy{pool: r.pool, addr: addr, since: since, agents: r.agents, luck: r.queue.Rand()}
}

// scan looks for addresses without a lease, up to as many as ADDs may wait. It is called when the
// whole state is new, and when the vacancies that are known are used up.
func (r *room) scan() {
	now := r.queue.Clock.Now()
	maps.DeleteFunc(r.vacant, func(addr netip.Addr, _ vacancy) bool {
		_, leased := r.taken[addr]
		return leased || !r.set.Contains(addr)
	})
	r.more = false
	// Each address that is skipped is in one of the maps, so the walk is short in a large pool too.
	for i := range r.set.Len() {
		if len(r.vacant) >= Most {
			r.more = true
			return
		}
		addr := r.set.At(i)
		_, leased := r.taken[addr]
		_, tried := r.offered[addr]
		_, known := r.vacant[addr]
		if !leased && !tried && !known {
			r.vacate(addr, now)
		}
	}
}

// offer hands an address to an ADD.
func (r *room) offer(addr netip.Addr) {
	delete(r.vacant, addr)
	r.offered[addr] = struct{}{}
	if len(r.vacant) == 0 && r.more {
		r.scan()
	}
}

// takeBack ends an offer. If the ADD did not get the address, and the watch does not show why, the
// address is offered again after a moment.
func (r *room) takeBack(addr netip.Addr, served bool) {
	if _, tried := r.offered[addr]; !tried {
		return // the watch has shown its end
	}
	delete(r.offered, addr)
	if _, leased := r.taken[addr]; !served && !leased && r.set.Contains(addr) {
		r.vacate(addr, r.queue.Clock.Now().Add(lostRetry))
	}
}

// describe says that the pool is full, for the error of an ADD.
func (r *room) describe() string {
	if !r.synced {
		return "it is exhausted"
	}
	leased := 0
	for addr := range r.taken {
		if r.set.Contains(addr) {
			leased++
		}
	}
	return fmt.Sprintf("it is exhausted, %d of its %d addresses have a lease", leased, r.set.Len())
}
