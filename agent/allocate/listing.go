// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/fenceline/fenceline/internal/poolset"
)

// listTimeout bounds a list. The callers that wait for it have their own deadlines.
const listTimeout = 10 * time.Second

// lister lists the leases of one pool. A list costs the API server about as much as ten creates, so
// the calls of this node share a list. A call gets the first list that begins after the call.
type lister struct {
	leases Leases
	pool   string
	shared singleflight.Group
	// turn is full while a list is under way.
	turn chan struct{}
}

func newLister(leases Leases, pool string) *lister {
	return &lister{leases: leases, pool: pool, turn: make(chan struct{}, 1)}
}

// list returns the leases as they are at one moment after the call.
func (l *lister) list(ctx context.Context) (*listing, error) {
	// The list outlives the caller that began it: others wait for it as well.
	background := context.WithoutCancel(ctx)
	result := l.shared.DoChan(l.pool, func() (any, error) {
		l.turn <- struct{}{}
		defer func() { <-l.turn }()
		l.shared.Forget(l.pool) // later calls get the next list
		ctx, cancel := context.WithTimeout(background, listTimeout)
		defer cancel()
		taken, err := l.leases.TakenIn(ctx, l.pool)
		return &listing{taken: taken}, err
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("list leases of pool %s: %w", l.pool, ctx.Err())
	case r := <-result:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*listing), nil
	}
}

// listing has the result of a list, and the leases that its readers have found since. Safe for
// concurrent use.
type listing struct {
	mu    sync.Mutex
	taken map[netip.Addr]struct{}
	added bool
}

// has reports whether an address had a lease then, or got one since.
func (l *listing) has(addr netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.taken[addr]
	return ok
}

// count returns how many addresses of a set have a lease.
func (l *listing) count(set poolset.Set) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := uint64(0)
	for addr := range l.taken {
		if set.Contains(addr) {
			n++
		}
	}
	return n
}

// add notes a lease that was created since.
func (l *listing) add(addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken[addr], l.added = struct{}{}, true
}

// outrun reports whether a lease was added. The listing is then no longer the state at one moment.
func (l *listing) outrun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.added
}
