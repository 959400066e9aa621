// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// rotations remembers where the rotations stand, and counts the writes.
type rotations struct {
	last   map[string]netip.Addr
	writes int
}

func (r *rotations) Get() (map[string]netip.Addr, bool) { return r.last, r.last != nil }

func (r *rotations) Put(last map[string]netip.Addr) error {
	r.last, r.writes = last, r.writes+1
	return nil
}

func TestTheOrderOfAddressesOutlivesTheAgent(t *testing.T) {
	a := agent(newMemory("a"), nil)
	l, _, err := onDemand(t.Context(), a, wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.9")))
	check.OK(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	book := &rotations{}
	for range 2 {
		check.OK(t, a.SaveRotations(ended, book, clock.RealClock{}, logr.Discard()))
	}
	check.That(t, book.last["a"] == l.Spec.Addr() && book.writes == 1,
		"goes on after %v, not after %s, %d writes", book.last, l.Spec.Address, book.writes)
}

// freed ends leases of this node.
func freed(m *memory, a *Allocator, pool string, addrs ...string) {
	for _, addr := range addrs {
		m.free(netip.MustParseAddr(addr))
		a.Freed(pool, netip.MustParseAddr(addr))
	}
}

func TestThePoolSaysHowLongAnAddressCoolsDown(t *testing.T) {
	m := newMemory("a")
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	a := New(Options{Leases: m, Clock: clock, Last: map[string]netip.Addr{"a": netip.MustParseAddr("10.0.0.9")}})
	w := wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.4"))
	w.Family.Pools[0].Pool.Spec.Reclaim = &v1alpha1.Reclaim{Cooldown: &v1alpha1.Duration{Duration: time.Hour}}
	var got []string
	for range 2 {
		got = append(got, get(t, a, w))
	}
	freed(m, a, "a", got...)
	got = append(got, get(t, a, w))
	clock.SetTime(time.Unix(0, 0).Add(time.Hour - time.Second))
	got = append(got, get(t, a, w), get(t, a, w))
	check.List(t, got, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.1"}, "got")
	clock.SetTime(time.Unix(0, 0).Add(2 * time.Hour))
	freed(m, a, "a", "10.0.0.1", "10.0.0.4", "10.0.0.3")
	clock.SetTime(time.Unix(0, 0).Add(3 * time.Hour))
	// The rotation goes on at 10.0.0.2; the last one freed waits for another.
	check.List(t, []string{get(t, a, w), get(t, a, w)}, []string{"10.0.0.4", "10.0.0.1"}, "after the cooldown:")
}

func TestABackupGoesBeforeWhatCoolsDown(t *testing.T) {
	m := newMemory("a", "10.0.0.1", "10.0.0.2")
	// Another node has freed 10.0.0.2, which the controller's bitmap still marks.
	w := wishFor(candidate(t, "a", []string{"10.0.0.1", "10.0.0.2"}, "10.0.0.1-10.0.0.2"), candidate(t, "b", nil, "10.0.0.9"))
	a := agent(m, nil)
	freed(m, a, "a", "10.0.0.1")
	m.free(netip.MustParseAddr("10.0.0.2"))
	for _, want := range []string{"10.0.0.9", "10.0.0.1", "10.0.0.2"} {
		check.Equal(t, get(t, a, w), want, "got")
	}
}

func TestAListDoesNotEndTheCooldown(t *testing.T) {
	// The bitmap knows nothing of nine leases, and one address cools down on
	// another node: after the collisions a list shows that it is free.
	m := newMemory("a")
	for n := 1; n <= 9; n++ {
		m.lease("a", fmt.Sprintf("10.0.0.%d", n))
	}
	w := wishFor(candidate(t, "a", []string{"10.0.0.10"}, "10.0.0.1-10.0.0.10"), candidate(t, "b", nil, "10.0.0.20"))
	a := agent(m, nil)
	for _, want := range []string{"10.0.0.20", "10.0.0.10"} {
		check.Equal(t, get(t, a, w), want, "got")
	}
}

func TestAnAddressFreedDuringTheLastProbeIsFound(t *testing.T) {
	m := newMemory("a", "10.0.0.1")
	w := wishFor(candidate(t, "a", []string{"10.0.0.1", "10.0.0.2"}, "10.0.0.1-10.0.0.2"))
	w.try = func(l *v1alpha1.IPLease) (bool, error) {
		if l.Spec.Address == "10.0.0.1" {
			return false, nil
		}
		m.free(netip.MustParseAddr("10.0.0.1"))
		return true, nil
	}
	check.Equal(t, get(t, agent(m, nil), w), "10.0.0.1", "got")
}

// history is which leases there were when. Every lease is told before anybody
// can meet it, and its end after it: at each moment the history knows all
// leases that there are. Safe for concurrent use; nil remembers nothing.
type history struct {
	mu     sync.Mutex
	events []event
}

type event struct {
	lease string
	by    int // +1 or -1
}

func (h *history) add(lease string, by int) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{lease, by})
}

// now is a moment.
func (h *history) now() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.events)
}

// everAllTaken tells whether at one moment from the first to the last, both
// included, every one of the leases was there.
func (h *history) everAllTaken(leases []string, from, to int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := map[string]bool{}
	for _, l := range leases {
		wanted[l] = true
	}
	count, taken := map[string]int{}, 0
	for i := 0; i <= to; i++ {
		if i >= from && taken == len(wanted) {
			return true
		}
		if i == len(h.events) || !wanted[h.events[i].lease] {
			continue
		}
		was := count[h.events[i].lease] > 0
		count[h.events[i].lease] += h.events[i].by
		switch is := count[h.events[i].lease] > 0; {
		case is && !was:
			taken++
		case was && !is:
			taken--
		}
	}
	return false
}
