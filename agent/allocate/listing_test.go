// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/test/check"
)

// TestCallsShareAList: what waits while a list is under way shares the next
// one, which begins after all of them have asked.
func TestCallsShareAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("a", "10.0.0.1")
		gate := make(chan struct{})
		m.onList = func() { <-gate }
		a := agent(m, nil)
		w := wishFor(candidate(t, "a", []string{"10.0.0.1"}, "10.0.0.1"))
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, _, err := onDemand(t.Context(), a, w)
				check.That(t, isExhausted(err), "got %v", err)
			})
			synctest.Wait()
		}
		close(gate)
		wg.Wait()
		check.That(t, m.lists == 2, "%d lists for 5 calls", m.lists)
	})
}

func TestAnAddressFreedAfterAListBeganIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("a", "10.0.0.1")
		// The API server answers late: what it answers is from before.
		a := agent(m, nil)
		gate := make(chan struct{})
		a.leases = &lateLists{m, gate}
		w := wishFor(candidate(t, "a", []string{"10.0.0.1"}, "10.0.0.1"))
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := onDemand(t.Context(), a, w)
			check.That(t, isExhausted(err), "the first: %v", err)
		})
		synctest.Wait()
		m.free(netip.MustParseAddr("10.0.0.1"))
		wg.Go(func() {
			l, _, err := onDemand(t.Context(), a, w)
			check.That(t, err == nil, "the second, who asked later: %v, %v", l, err)
		})
		synctest.Wait()
		close(gate)
		wg.Wait()
	})
}

// lateLists answers a list with what it was when asked, once the gate is open.
type lateLists struct {
	*memory
	gate chan struct{}
}

func (l *lateLists) TakenIn(ctx context.Context, pool string) (map[netip.Addr]struct{}, error) {
	taken, err := l.memory.TakenIn(ctx, pool)
	<-l.gate
	return taken, err
}

func TestWhatAnOverlappingPoolHeldIsAskedForAgain(t *testing.T) {
	m := newMemory("a")
	m.lease("overlapping", "10.0.0.1")
	// While another node takes the one address, the other is freed.
	m.onCreate = func(addr netip.Addr) error {
		if addr.String() == "10.0.0.2" {
			m.lease("a", "10.0.0.2")
			m.free(netip.MustParseAddr("10.0.0.1"))
		}
		return nil
	}
	a := agent(m, nil)
	a.Freed("a", netip.MustParseAddr("10.0.0.1"))
	a.Freed("a", netip.MustParseAddr("10.0.0.2"))
	check.Equal(t, get(t, a, wishFor(candidate(t, "a", []string{"10.0.0.1", "10.0.0.2"}, "10.0.0.1-10.0.0.2"))), "10.0.0.1", "got")
}

func isExhausted(err error) bool {
	none := (*ipam.NoPoolError)(nil)
	return errors.As(err, &none) && none.Exhausted()
}

// TestWorkersOfANodeDivideWhatAListShows: no two of them try one address.
func TestWorkersOfANodeDivideWhatAListShows(t *testing.T) {
	const workers = 20
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("a")
		var marked []string
		for n := range workers {
			marked = append(marked, fmt.Sprintf("10.0.0.%d", n+1))
		}
		// The bitmap marks all of them, wrongly: only a list shows the truth.
		w := wishFor(candidate(t, "a", marked, fmt.Sprintf("10.0.0.1-10.0.0.%d", workers)))
		gate := make(chan struct{})
		w.before = func() error { <-gate; return nil }
		a := agent(m, nil)
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				_, _, err := onDemand(t.Context(), a, w)
				check.That(t, err == nil, "%v", err)
			})
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		check.That(t, m.creates == workers, "%d creates for %d addresses", m.creates, workers)
	})
}

func TestTheLastAddressIsTriedThoughAnotherCallTriesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("a")
		w := wishFor(candidate(t, "a", nil, "10.0.0.1"))
		gate := make(chan struct{})
		fails := w
		fails.before = func() error { <-gate; return errors.New("disk full") }
		a := agent(m, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := onDemand(t.Context(), a, fails)
			check.That(t, err != nil, "the first got the address")
		})
		synctest.Wait()
		check.Equal(t, get(t, a, w), "10.0.0.1", "got")
		close(gate)
		wg.Wait()
	})
}
