// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"sync"
	"time"
)

// notes is what the reconciler remembers of the pools between two passes. A new leader starts without
// notes. Safe for concurrent use.
type notes struct {
	mu    sync.Mutex
	pools map[string]*note
}

// note is the memory of one pool.
type note struct {
	// freed has the time at which each address was freed that cools down.
	freed map[netip.Addr]time.Time
	// turns are the earliest times of the next pass, publication and urgent publication.
	turns struct{ look, ordinary, urgent time.Time }
	// fewer is nil while there are as many agents as the pool publishes.
	fewer *shortfall
}

func newNotes() *notes { return &notes{pools: map[string]*note{}} }

// of returns the note about a pool. The caller holds mu.
func (n *notes) of(pool string) *note {
	if n.pools[pool] == nil {
		n.pools[pool] = &note{freed: map[netip.Addr]time.Time{}}
	}
	return n.pools[pool]
}

// forget removes a pool that is gone.
func (n *notes) forget(pool string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pools, pool)
}
