// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// minInterval is the shortest time between two passes over one pool.
	minInterval = time.Second
	// fanOut is the greatest rate, in bytes per second, at which the API server sends the
	// publications of one pool to all agents. totalFanOut is the rate for all pools together.
	fanOut, totalFanOut = 1 << 20, 32 << 20
	// recordSize is the size of a pool on the wire without its bitmap, in bytes.
	recordSize = 3 << 10
	// entryInterval is the interval between publications for each entry of ips and excludeIPs. The API
	// server validates all of them at each write of the status, in about 60 µs each.
	entryInterval = 600 * time.Microsecond
	// urgentAhead is the number of publications by which an urgent one may be early. Later
	// publications wait for longer, so that a pool whose state flaps costs no more than another.
	urgentAhead = 4
)

// size is the size of a publication: the bytes of the bitmap, and the number of entries of the pool.
type size struct{ bytes, entries int }

func sizeOf(pool *v1alpha1.IPPool) size {
	return size{len(pool.Status.InUse), len(pool.Spec.IPs) + len(pool.Spec.ExcludeIPs)}
}

// interval returns the time between publications of the given size, while the given number of pools
// have something to publish. An entry has 16 bytes on the wire.
func interval(s size, agents, pools int) time.Duration {
	share := min(fanOut, totalFanOut/max(1, pools))
	cost := time.Duration(recordSize+s.bytes+16*s.entries) * time.Duration(agents) * time.Second / time.Duration(share)
	return max(minInterval, cost, time.Duration(s.entries)*entryInterval)
}

// look returns the time for which the next pass over a pool must wait. If it is 0, the pass may begin
// and is recorded.
func (n *notes) look(pool string, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &n.of(pool).turns
	if now.Before(t.look) {
		return t.look.Sub(now)
	}
	t.look = now.Add(minInterval)
	return 0
}

// wait returns the time for which a pool's next publication must wait.
func (n *notes) wait(pool string, urgent bool, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &n.of(pool).turns
	if urgent {
		return max(0, t.urgent.Sub(now))
	}
	return max(0, t.ordinary.Sub(now))
}

// published records a publication of the given size to the given number of agents.
func (n *notes) published(pool string, s size, agents int, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, cost := &n.of(pool).turns, interval(s, agents, n.busy(now))
	if t.ordinary.Before(now) {
		t.ordinary = now
	}
	t.ordinary = t.ordinary.Add(cost)
	t.urgent = t.ordinary.Add(-urgentAhead * cost)
}

// busy returns the number of pools that published a short time ago and wait for their turn.
func (n *notes) busy(now time.Time) int {
	busy := 0
	for _, of := range n.pools {
		if now.Before(of.turns.ordinary) {
			busy++
		}
	}
	return busy
}
