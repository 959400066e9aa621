// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// follower is one watch.
type follower struct{ News }

// server is an API server in memory that knows the leases of pools.
type server struct {
	mu     sync.Mutex
	taken  map[string]map[netip.Addr]bool
	open   map[string]*follower
	away   error
	cut    chan struct{}
	lists  int
	ending chan string // has the pool of each watch that ended
}

func newServer() *server {
	return &server{taken: map[string]map[netip.Addr]bool{}, open: map[string]*follower{}, cut: make(chan struct{}), ending: make(chan string, 100)}
}

func (s *server) Follow(ctx context.Context, pool string, n News) error {
	s.mu.Lock()
	s.lists++
	err, cut, taken := s.away, s.cut, map[netip.Addr]struct{}{}
	for addr := range s.taken[pool] {
		taken[addr] = struct{}{}
	}
	own := &follower{n}
	if err == nil {
		s.open[pool] = own
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	n.Listed(taken)
	select {
	case <-ctx.Done():
		s.mu.Lock()
		if s.open[pool] == own { // a later watch may have taken its place
			delete(s.open, pool)
		}
		s.mu.Unlock()
		s.ending <- pool
		return ctx.Err()
	case <-cut:
		return errors.New("cut")
	}
}

// set gives an address a lease, or takes it away.
func (s *server) set(pool, addr string, leased bool) {
	a := netip.MustParseAddr(addr)
	s.mu.Lock()
	if s.taken[pool] == nil {
		s.taken[pool] = map[netip.Addr]bool{}
	}
	if leased {
		s.taken[pool][a] = true
	} else {
		delete(s.taken[pool], a)
	}
	n := s.open[pool]
	s.mu.Unlock()
	if n != nil {
		n.Changed(a, leased)
	}
}

// lose ends all watches. The changes until the next list are not reported.
func (s *server) lose(away error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.open = away, map[string]*follower{}
	close(s.cut)
	s.cut = make(chan struct{})
}

type counted struct {
	mu      sync.Mutex
	waiting map[string]int
}

func (c *counted) Waiting(pool string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[pool] = n
}
func (c *counted) Waited(time.Duration, bool) {}

// world is a queue before a server, in a bubble of synctest.
type world struct {
	*Queue
	*server
	*counted
	t   *testing.T
	end context.CancelFunc
}

func newWorld(t *testing.T) *world {
	s, c := newServer(), &counted{waiting: map[string]int{}}
	ctx, end := context.WithCancel(t.Context())
	return &world{New(Options{
		Leases: s, Rand: func() float64 { return 0 }, Metrics: c, Clock: clock.RealClock{}, Log: testr.New(t), Background: ctx,
	}), s, c, t, end}
}

// full makes a pool without a free address.
func (w *world) full(name string, n int) Pool {
	pool := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Subnet: "10.0.0.0/24", IPs: []string{fmt.Sprintf("10.0.0.2-10.0.0.%d", n+1)}}}
	set := check.Value(poolset.Addresses(pool))(w.t)
	for i := range set.Len() {
		w.set(name, set.At(i).String(), true)
	}
	return Pool{name, set, 1}
}

// outcome is the end of a wait.
type outcome struct {
	who string
	Offer
	err error
}

// await has an ADD wait, and returns once it does and its pools are watched.
func (w *world) await(p *Place, who string, patience time.Duration, ends chan<- outcome, pools ...Pool) {
	go func() {
		o, err := p.Await(w.t.Context(), pools, time.Now().Add(patience))
		ends <- outcome{who, o, err}
	}()
	synctest.Wait()
}

// inBubble runs a test in a bubble of fake time, with a full pool of some addresses.
func inBubble(t *testing.T, addresses int, test func(t *testing.T, w *world, lan Pool, ends chan outcome)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		test(t, w, w.full("lan", addresses), make(chan outcome, Most))
	})
}

func wantOffer(t *testing.T, ends <-chan outcome, who, addr string) {
	t.Helper()
	select {
	case e := <-ends:
		check.Must(t, e.who == who && e.err == nil && e.Addr.String() == addr, "%s gets %v, %v; want %s for %s", e.who, e.Offer, e.err, addr, who)
	case <-time.After(10 * time.Second):
		t.Fatalf("%s is not woken", who)
	}
}

func TestAddressesAreOfferedInTheOrderOfArrival(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		places := map[string]*Place{}
		for _, who := range []string{"a", "b", "c"} {
			places[who] = w.Enter(Key{who, "eth0"})
			time.Sleep(time.Millisecond) // or all arrive at the same time
		}
		// They begin to wait in another order than they arrived.
		for _, who := range []string{"c", "a", "b"} {
			w.await(places[who], who, time.Minute, ends, lan)
		}
		newcomer := w.Enter(Key{"d", "eth0"})
		why, closed := newcomer.Closed("lan")
		check.That(t, closed, "a newcomer is not held back")
		check.Equal(t, why, "it is exhausted, 3 of its 3 addresses have a lease, and 3 pods of this node came earlier and wait for it", "the reason is")
		_, closed = newcomer.Closed("wan")
		check.That(t, !closed, "nobody waits for pool wan")
		for i, who := range []string{"a", "b", "c"} {
			addr := fmt.Sprintf("10.0.0.%d", 2+i)
			w.set("lan", addr, false)
			wantOffer(t, ends, who, addr)
			w.set("lan", addr, true)
			places[who].Leave(true)
		}
		_, closed = newcomer.Closed("lan")
		check.That(t, !closed, "nobody waits any more")
		pool := <-w.ending
		check.That(t, pool == "lan" && w.waiting["lan"] == 0 && len(w.rooms) == 0, "left: %v, %d ADDs counted", w.rooms, w.waiting["lan"])
		check.That(t, w.lists == 1, "%d lists for one wait of three ADDs", w.lists)
	})
}

func TestAnAddressThatCameFreeBeforeTheWatchIsNotMissed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		w.set("lan", "10.0.0.3", false)
		w.await(w.Enter(Key{"a", "eth0"}), "a", time.Minute, ends, lan)
		wantOffer(t, ends, "a", "10.0.0.3")
	})
}

func TestALostAddressIsOfferedAgainOnlyIfItHasNoLease(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		a := w.Enter(Key{"a", "eth0"})
		w.await(a, "a", time.Minute, ends, lan)
		w.set("lan", "10.0.0.2", false)
		wantOffer(t, ends, "a", "10.0.0.2")
		// Another node was faster.
		w.set("lan", "10.0.0.2", true)
		began := time.Now()
		w.await(a, "a", 2*lostRetry, ends, lan)
		check.Is(t, (<-ends).err, ErrLate, "got")
		check.That(t, time.Since(began) >= 2*lostRetry, "it gave up early")
		// The create failed, and nobody has the address.
		w.set("lan", "10.0.0.2", false)
		w.await(a, "a", time.Minute, ends, lan)
		wantOffer(t, ends, "a", "10.0.0.2")
		w.await(a, "a", time.Minute, ends, lan)
		wantOffer(t, ends, "a", "10.0.0.2")
		// Another node was faster, and the ADD ends.
		w.await(w.Enter(Key{"b", "eth0"}), "b", 2*lostRetry, ends, lan)
		w.set("lan", "10.0.0.2", true)
		a.Leave(false)
		check.Is(t, (<-ends).err, ErrLate, "the next ADD: got")
	})
}

func TestTheNextTryOfTheRuntimeKeepsItsPlace(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		first := w.Enter(Key{"a", "eth0"})
		w.await(first, "a", time.Nanosecond, ends, lan)
		check.Is(t, (<-ends).err, ErrLate, "got")
		first.Leave(false)
		w.await(w.Enter(Key{"b", "eth0"}), "b", time.Minute, ends, lan)
		again := w.Enter(Key{"a", "eth0"})
		why, closed := again.Closed("lan")
		check.That(t, !closed, "it is held back by a pod that came later: %s", why)
		w.await(again, "a", time.Minute, ends, lan)
		w.set("lan", "10.0.0.2", false)
		wantOffer(t, ends, "a", "10.0.0.2")
		w.set("lan", "10.0.0.2", true)
		again.Leave(true)
		// A later sandbox of the same pod is a newcomer.
		why, closed = w.Enter(Key{"a", "eth0"}).Closed("lan")
		check.That(t, closed, "a served pod keeps its place: %s", why)
	})
}

func TestAWatchThatEndsIsOpenedAgainAndMissesNothing(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		a := w.Enter(Key{"a", "eth0"})
		w.await(a, "a", time.Minute, ends, lan)
		w.lose(nil)
		w.set("lan", "10.0.0.3", false)
		wantOffer(t, ends, "a", "10.0.0.3")
	})
}

func TestAWaitWithoutTheAPIServerIsNotCalledExhausted(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		a := w.Enter(Key{"a", "eth0"})
		w.lose(errors.New("away"))
		w.await(a, "a", 200*time.Millisecond, ends, lan)
		check.Is(t, (<-ends).err, ErrBlind, "got")
		a.Leave(false)
	})
}

func TestOtherEndsOfAWait(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		a := w.Enter(Key{"a", "eth0"})
		w.await(a, "a", time.Minute, ends, lan)
		w.Changed()
		e := <-ends
		check.That(t, e.err == nil && !e.Addr.IsValid(), "a change: got %v, %v", e.Offer, e.err)
		larger := w.full("lan", 2)
		w.set("lan", "10.0.0.3", false)
		w.await(a, "a", time.Minute, ends, larger)
		wantOffer(t, ends, "a", "10.0.0.3")
		w.await(a, "a", time.Minute, ends, lan)
		for i := 1; i < Most; i++ {
			w.await(w.Enter(Key{fmt.Sprint(i), "eth0"}), fmt.Sprint(i), time.Minute, ends, lan)
		}
		check.Is(t, check.Err(w.Enter(Key{"more", "eth0"}).Await(t.Context(), []Pool{lan}, time.Now().Add(time.Minute))), ErrCrowded, "one too many:")
		w.end()
		for range Most {
			e := <-ends
			check.Must(t, errors.Is(e.err, ErrStopping), "%s: %v", e.who, e.err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("a DEL came"))
		check.That(t, check.Err(a.Await(ctx, []Pool{lan}, time.Now().Add(time.Minute))) != nil, "a cancelled call waits")
	})
}
