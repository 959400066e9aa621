// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/poolset"
)

const (
	// Most is the number of ADDs of a node that may wait. Each holds two processes of plugins.
	Most = 64
	// remembered is how long an ADD that gave up keeps its place. Its next try comes within 15 s.
	remembered = time.Minute
)

// Key identifies a pod interface over all tries of the runtime.
type Key struct{ PodUID, Interface string }

// Pool is a full pool.
type Pool struct {
	Name string
	// Only are the addresses of the pool that the ADD wants; nil means any.
	Only []netip.Addr
	// Set has the addresses that the pool may hand out to the ADD.
	Set poolset.Set
	// Agents is the number of agents that may compete for an address of the pool.
	Agents int
}

// roomKey identifies a room: ADDs that want any address of a pool share one, and so do ADDs with the same
// wish.
func roomKey(pool string, only []netip.Addr) string {
	key := pool
	for _, addr := range slices.SortedFunc(slices.Values(only), netip.Addr.Compare) {
		key += " " + addr.String()
	}
	return key
}

// Offer is an address that has come free.
type Offer struct {
	Pool string
	Addr netip.Addr
}

// Options of a Queue. All are required.
type Options struct {
	// Leases lists the addresses of a pool that have a lease. *lease.Store implements it.
	Leases interface {
		TakenIn(ctx context.Context, pool string) (map[netip.Addr]struct{}, error)
	}
	// Server is the API server's clock.
	Server clock.PassiveClock
	// Rand returns a number from 0 to 1.
	Rand    func() float64
	Metrics Metrics
	Clock   clock.WithDelayedExecution
	Log     logr.Logger
	// Background ends with the agent.
	Background context.Context
}

// Metrics counts the ADDs that wait. Its methods may be called concurrently.
type Metrics interface {
	// Waiting sets the number of ADDs that wait for an address of a pool.
	Waiting(pool string, adds int)
	// Waited counts the end of a wait.
	Waited(d time.Duration, served bool)
}

// Queue has the ADDs that wait. Safe for concurrent use.
type Queue struct {
	Options
	// News is up when Waits may have changed.
	News loop.Wake

	mu     sync.Mutex
	places []*Place         // those that wait or try an address, in the order of their arrival
	rooms  map[string]*room // by roomKey
	// arrivals has the time of the first try of each pod interface.
	arrivals map[Key]arrival
	// changes is the number of calls of Changed.
	changes uint64
	timer   clock.Timer
}

// arrival is the first and the last time at which a pod interface asked for an address.
type arrival struct{ first, last time.Time }

// New returns a Queue.
func New(o Options) *Queue {
	return &Queue{Options: o, News: loop.NewWake(), rooms: map[string]*room{}, arrivals: map[Key]arrival{}}
}

// Enter returns the place of an ADD that begins. It does not wait yet. The caller calls Leave once.
func (q *Queue) Enter(k Key) *Place {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := &Place{queue: q, key: k, arrived: q.Clock.Now(), wake: loop.NewWake()}
	if a, ok := q.arrivals[k]; ok && p.arrived.Sub(a.last) < remembered {
		p.arrived = a.first
	}
	since := q.Server.Now().Add(-q.Clock.Since(p.arrived))
	p.since = metav1.NewMicroTime(since.Truncate(time.Microsecond)) // as it is read again
	return p
}

// Waits returns the pools and wishes for which ADDs wait, those with the longest waits first.
func (q *Queue) Waits() (waits []v1alpha1.PoolWait) {
	q.mu.Lock()
	defer q.mu.Unlock()
	since := map[string]metav1.MicroTime{}
	for _, p := range slices.Backward(q.places) { // the first ADD of a room comes last
		for _, key := range p.rooms {
			since[key] = p.since
		}
	}
	for key, at := range since {
		waits = append(waits, v1alpha1.PoolWait{Pool: q.rooms[key].pool, Addresses: q.rooms[key].only, Since: at})
	}
	slices.SortFunc(waits, func(a, b v1alpha1.PoolWait) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Pool, b.Pool), slices.Compare(a.Addresses, b.Addresses))
	})
	return waits[:min(len(waits), v1alpha1.MaxHintWaits)]
}

// Hear takes what the controller tells in the hint of this node.
func (q *Queue) Hear(h *v1alpha1.LeaseHint) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.rooms {
		free := map[netip.Addr]string{}
		for _, f := range h.Status.Free {
			if addr, err := netip.ParseAddr(f.Address); err == nil && f.Pool == r.pool {
				free[addr] = f.Version
			}
		}
		asked := slices.ContainsFunc(h.Spec.Waits, func(w v1alpha1.PoolWait) bool {
			return w.Pool == r.pool && slices.Equal(w.Addresses, r.only)
		})
		r.hear(asked && h.Status.Round == h.Spec.Round, free)
	}
	q.dispatch()
}

// Changed makes each ADD that waits look again: a pool, or a pod of this node, has changed.
func (q *Queue) Changed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changes++
	for _, p := range q.places {
		p.changed = true
		p.wake.Up()
	}
}

// dispatch offers the vacancies. The caller holds the lock.
func (q *Queue) dispatch() {
	now := q.Clock.Now()
	var idle []*Place
	var waiters []waiter
	for _, p := range q.places {
		if !p.offer.Addr.IsValid() {
			idle = append(idle, p)
			waiters = append(waiters, waiter{p.arrived, p.rooms})
		}
	}
	if len(idle) == 0 {
		return
	}
	var vacancies []vacancy
	for _, r := range q.rooms {
		vacancies = slices.AppendSeq(vacancies, maps.Values(r.vacant))
	}
	gets, next := assign(now, waiters, vacancies)
	for i, j := range gets {
		if j >= 0 {
			v := vacancies[j]
			idle[i].offer, idle[i].offeredIn = Offer{q.rooms[v.room].pool, v.addr}, v.room
			q.rooms[v.room].offer(v.addr)
			idle[i].wake.Up()
		}
	}
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	if !next.IsZero() {
		q.timer = q.Clock.AfterFunc(next.Sub(now), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.dispatch()
		})
	}
}

// count publishes the number of waiting ADDs of a pool. The caller holds the lock.
func (q *Queue) count(pool string) {
	n := 0
	for _, p := range q.places {
		if slices.ContainsFunc(p.rooms, func(key string) bool { return q.rooms[key].pool == pool }) {
			n++
		}
	}
	q.Metrics.Waiting(pool, n)
}

// insert adds a place in the order of arrival. The caller holds the lock.
func (q *Queue) insert(p *Place) {
	at, _ := slices.BinarySearchFunc(q.places, p, func(a, b *Place) int {
		return cmp.Or(a.arrived.Compare(b.arrived), -1) // behind those that arrived at the same time
	})
	q.places = slices.Insert(q.places, at, p)
}

// remember notes that the interface of a place was asked for, and forgets the old ones. The caller
// holds the lock.
func (q *Queue) remember(p *Place) {
	now := q.Clock.Now()
	maps.DeleteFunc(q.arrivals, func(_ Key, a arrival) bool { return now.Sub(a.last) >= remembered })
	q.arrivals[p.key] = arrival{p.arrived, now}
}
