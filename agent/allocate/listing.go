package allocate

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/fenceline/fenceline/agent/ipam"
)

// listTimeout bounds a list: those who wait for it have deadlines of their own.
const listTimeout = 10 * time.Second

// lister lists the leases of one pool. A list costs the API server about ten
// creates, so that all calls of this node share it that ask before it begins.
type lister struct {
	leases Leases
	pool   string
	shared singleflight.Group
	// turn is held by the one list under way.
	turn chan struct{}
}

func newLister(leases Leases, pool string) *lister {
	return &lister{leases: leases, pool: pool, turn: make(chan struct{}, 1)}
}

// list returns the truth of one moment after the call.
func (l *lister) list(ctx context.Context) (*listing, error) {
	// The list outlives the caller that began it: others wait for it as well.
	background := context.WithoutCancel(ctx)
	result := l.shared.DoChan(l.pool, func() (any, error) {
		l.turn <- struct{}{}
		defer func() { <-l.turn }()
		l.shared.Forget(l.pool) // who asks from now on gets the next list
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

// listing is what a list has shown, and what its readers have learnt since.
// Safe for concurrent use.
type listing struct {
	mu    sync.Mutex
	taken map[netip.Addr]struct{}
	added bool
}

// has tells whether an address had a lease then, or got one since.
func (l *listing) has(addr netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.taken[addr]
	return ok
}

// count returns how many addresses of a set have a lease.
func (l *listing) count(set ipam.Set) uint64 {
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

// outrun tells whether anything was added: what the listing shows now was then
// never true at one moment.
func (l *listing) outrun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.added
}
