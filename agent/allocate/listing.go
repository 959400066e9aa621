// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"net/netip"
	"sync"
	"time"

	"github.com/fenceline/fenceline/internal/poolset"
)

// listTimeout bounds a list. The callers that wait for it have their own deadlines.
const listTimeout = 10 * time.Second

// listing has the result of a list, and the leases found since. Safe for concurrent use.
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
