// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/internal/loop"
)

// The ends of a wait without an offer.
var (
	// ErrLate: no address has come free in time.
	ErrLate = errors.New("no address has come free in time")
	// ErrCrowded: too many ADDs of this node wait already.
	ErrCrowded = fmt.Errorf("%d pods of this node wait already", Most)
	// ErrStopping: the agent ends.
	ErrStopping = errors.New("the agent is stopping")
)

// Place is the place of one ADD in the Queue. One goroutine uses it.
type Place struct {
	queue   *Queue
	key     Key
	arrived time.Time
	// since is arrived by the API server's clock, which all nodes have in common.
	since metav1.MicroTime
	wake  loop.Wake

	// The lock of the Queue protects the fields below. rooms has the keys of the rooms, and is empty before
	// the first Await. offeredIn is that of the offer.
	rooms     []string
	began     time.Time
	offer     Offer
	offeredIn string
	changed   bool
	// looked is true after Look, and seen is the number of changes by then.
	looked bool
	seen   uint64
}

// Look notes that the ADD is about to read the pools. If a pool or a pod changes before the next Await,
// Await returns at once.
func (p *Place) Look() {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	p.looked, p.seen = true, p.queue.changes
}

// ahead returns the number of ADDs of this node that wait in a room and arrived earlier. The caller
// holds the lock.
func (q *Queue) ahead(p *Place, key string) int {
	n := 0
	for _, other := range q.places {
		if other == p || other.arrived.After(p.arrived) {
			break
		}
		if !other.offer.Addr.IsValid() && slices.Contains(other.rooms, key) {
			n++
		}
	}
	return n
}

// Closed returns the reason why this ADD gets only offered addresses of a pool: it waits for the
// pool already, or ADDs that arrived earlier do. With a wish, only the ADDs with the same wish count.
func (p *Place) Closed(pool string, only ...netip.Addr) (why string, closed bool) {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	key := roomKey(pool, only)
	r := q.rooms[key]
	if r == nil {
		return "", false
	}
	ahead := q.ahead(p, key)
	if ahead == 0 && !slices.Contains(p.rooms, key) {
		return "", false
	}
	why = r.describe()
	if ahead > 0 {
		why += fmt.Sprintf(", and %d pods of this node came earlier and wait for it", ahead)
	}
	return why, true
}

// Await waits for an address of the pools, until a time. It returns the zero Offer if a pool or a
// pod has changed. The caller then chooses its pools again. The ADD keeps its place until Leave.
func (p *Place) Await(ctx context.Context, pools []Pool, until time.Time) (Offer, error) {
	q := p.queue
	if err := p.join(pools); err != nil {
		return Offer{}, err
	}
	timer := q.Clock.NewTimer(until.Sub(q.Clock.Now()))
	defer timer.Stop()
	for {
		late := false
		select {
		case <-p.wake:
		case <-timer.C():
			late = true
		case <-ctx.Done():
			return Offer{}, context.Cause(ctx)
		case <-q.Background.Done():
			return Offer{}, ErrStopping
		}
		if o, err := p.result(late); late || err == nil {
			return o, err
		}
	}
}

// result returns the offer, or the zero Offer after a change, or else ErrLate.
func (p *Place) result(late bool) (Offer, error) {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case p.offer.Addr.IsValid():
		return p.offer, nil
	case p.changed && !late:
		p.changed = false
		return Offer{}, nil
	}
	return Offer{}, ErrLate
}

// Heard reports whether the controller has answered all waits of the place.
func (p *Place) Heard() bool {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return !slices.ContainsFunc(p.rooms, func(key string) bool { return !q.rooms[key].heard })
}

// join takes the place, or changes the pools of a place. An offer that was not used ends.
func (p *Place) join(pools []Pool) error {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.began.IsZero() {
		if len(q.places) >= Most {
			q.remember(p)
			return ErrCrowded
		}
		p.began = q.Clock.Now()
		q.insert(p)
	}
	q.remember(p)
	if p.looked && p.seen != q.changes {
		p.changed = true
		p.wake.Up()
	}
	p.takeBack(false)
	left := p.rooms
	p.rooms = nil
	for _, pool := range pools {
		key := roomKey(pool.Name, pool.Only)
		r := q.rooms[key]
		if r == nil {
			r = q.open(key, pool)
		}
		r.places++
		r.set, r.agents = pool.Set, pool.Agents
		r.look()
		p.rooms = append(p.rooms, key)
		q.count(pool.Name)
	}
	q.quit(left)
	q.News.Up()
	q.dispatch()
	return nil
}

// Leave ends the ADD. served reports whether it got its addresses.
func (p *Place) Leave(served bool) {
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if !p.began.IsZero() {
		p.takeBack(served)
		q.places = slices.DeleteFunc(q.places, func(other *Place) bool { return other == p })
		left := p.rooms
		p.rooms = nil
		q.remember(p)
		q.quit(left)
		q.News.Up()
		q.Metrics.Waited(q.Clock.Since(p.began), served)
		q.dispatch()
	}
	if served {
		delete(q.arrivals, p.key)
	}
}

// takeBack ends the offer to the place. The caller holds the lock.
func (p *Place) takeBack(served bool) {
	if !p.offer.Addr.IsValid() {
		return
	}
	p.queue.rooms[p.offeredIn].takeBack(p.offer.Addr, served)
	p.offer, p.offeredIn = Offer{}, ""
	select {
	case <-p.wake: // for that offer
	default:
	}
	if p.changed {
		p.wake.Up()
	}
}

// quit gives up a place's part in rooms, and closes empty ones. The caller holds the lock.
func (q *Queue) quit(rooms []string) {
	for _, key := range rooms {
		r := q.rooms[key]
		q.count(r.pool)
		if r.places--; r.places == 0 {
			r.close()
			delete(q.rooms, key)
		}
	}
}
