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

// server is an API server in memory that knows the leases of pools, and a controller.
type server struct {
	mu    sync.Mutex
	sets  map[string]poolset.Set
	taken map[string]map[netip.Addr]bool
	// version is the number of changes, and ended the change with which a lease has ended.
	version int
	ended   map[netip.Addr]int
	// silent: the controller is away, or does not know waits. Then the hint tells stale. away is the error of lists.
	silent bool
	stale  []v1alpha1.FreeAddress
	away   error
	lists  int
}

// TakenIn lists the leases of a pool.
func (s *server) TakenIn(_ context.Context, pool string) (map[netip.Addr]struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	taken := map[netip.Addr]struct{}{}
	for addr := range s.taken[pool] {
		taken[addr] = struct{}{}
	}
	return taken, s.away
}

// fail has all lists fail, or succeed again.
func (s *server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

// set gives an address a lease, or takes it away.
func (s *server) set(pool, addr string, leased bool) {
	a := netip.MustParseAddr(addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	if s.taken[pool] == nil {
		s.taken[pool] = map[netip.Addr]bool{}
	}
	if leased {
		s.taken[pool][a] = true
	} else {
		delete(s.taken[pool], a)
		s.ended[a] = s.version
	}
}

// tell has the controller tell a queue of all free addresses of its pools.
func (s *server) tell(q *Queue) {
	h := &v1alpha1.LeaseHint{Spec: v1alpha1.LeaseHintSpec{Waits: q.Waits(), Round: "2"}}
	s.mu.Lock()
	h.Status.Round = "2"
	if s.silent {
		h.Status.Round, h.Status.Free = "1", s.stale
	}
	for _, wait := range h.Spec.Waits {
		for i := uint64(0); i < s.sets[wait.Pool].Len() && !s.silent; i++ {
			if addr := s.sets[wait.Pool].At(i); !s.taken[wait.Pool][addr] {
				h.Status.Free = append(h.Status.Free, v1alpha1.FreeAddress{Pool: wait.Pool, Address: addr.String(), Version: fmt.Sprint(s.ended[addr])})
			}
		}
	}
	s.mu.Unlock()
	q.Hear(h)
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
	s, c := &server{sets: map[string]poolset.Set{}, taken: map[string]map[netip.Addr]bool{}, ended: map[netip.Addr]int{}}, &counted{waiting: map[string]int{}}
	ctx, end := context.WithCancel(t.Context())
	return &world{New(Options{
		Leases: s, Server: clock.RealClock{}, Rand: func() float64 { return 0 }, Metrics: c, Clock: clock.RealClock{}, Log: testr.New(t), Background: ctx,
	}), s, c, t, end}
}

// full makes a pool without a free address.
func (w *world) full(name string, n int) Pool {
	pool := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Subnet: "10.0.0.0/24", IPs: []string{fmt.Sprintf("10.0.0.2-10.0.0.%d", n+1)}}}
	set := check.Value(poolset.Addresses(pool))(w.t)
	w.sets[name] = set
	for i := range set.Len() {
		w.server.set(name, set.At(i).String(), true)
	}
	return Pool{Name: name, Set: set, Agents: 1}
}

// set gives an address a lease, or takes it away, and has the controller tell of it.
func (w *world) set(pool, addr string, leased bool) {
	w.server.set(pool, addr, leased)
	w.tell(w.Queue)
}

// outcome is the end of a wait.
type outcome struct {
	who string
	Offer
	err error
}

// await has an ADD wait, and returns once it does and the controller has answered.
func (w *world) await(p *Place, who string, patience time.Duration, ends chan<- outcome, pools ...Pool) {
	w.begin(p, who, patience, ends, pools...)
	w.tell(w.Queue)
}

// begin has an ADD wait, and returns once it does.
func (w *world) begin(p *Place, who string, patience time.Duration, ends chan<- outcome, pools ...Pool) {
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
	wantEnd(t, ends, who, addr, 10*time.Second)
}

func wantEnd(t *testing.T, ends <-chan outcome, who, addr string, limit time.Duration) {
	t.Helper()
	select {
	case e := <-ends:
		check.Must(t, e.who == who && e.err == nil && e.Addr.String() == addr, "%s gets %v, %v; want %s for %s", e.who, e.Offer, e.err, addr, who)
	case <-time.After(limit):
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
		check.That(t, len(w.Waits()) == 0 && w.waiting["lan"] == 0 && len(w.rooms) == 0, "left: %v, %d ADDs counted", w.rooms, w.waiting["lan"])
		check.Equal(t, w.lists, 0, "lists:")
	})
}

func TestAnAddressThatCameFreeBeforeTheAnswerIsNotMissed(t *testing.T) {
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

func TestAnAddressThatComesFreeAgainIsOfferedAtOnce(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		a := w.Enter(Key{"a", "eth0"})
		w.await(a, "a", time.Minute, ends, lan)
		for range 3 {
			w.set("lan", "10.0.0.2", false)
			began := time.Now()
			wantOffer(t, ends, "a", "10.0.0.2")
			check.Equal(t, time.Since(began), 0, "it is offered after")
			// Another node was faster, and gives it back before the controller has told that it has it.
			w.server.set("lan", "10.0.0.2", true)
			w.begin(a, "a", time.Minute, ends, lan)
		}
	})
}

func TestWhatTheAgentDoesWhileTheControllerIsAway(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		w.silent = true
		a := w.Enter(Key{"a", "eth0"})
		began := time.Now()
		w.set("lan", "10.0.0.3", false)
		w.fail(errors.New("away"))
		w.await(a, "a", time.Minute, ends, lan)
		time.Sleep(patience + time.Second)
		w.fail(nil)
		wantEnd(t, ends, "a", "10.0.0.3", time.Minute)
		check.Equal(t, time.Since(began), patience+listEvery, "it is offered after a list, in its second try, after")
		// Another node was faster.
		w.set("lan", "10.0.0.3", true)
		w.await(a, "a", time.Minute, ends, lan)
		time.Sleep(listEvery + time.Second)
		synctest.Wait()
		check.Equal(t, w.lists, 3, "lists:")
		// The controller is back.
		w.silent = false
		w.set("lan", "10.0.0.2", true)
		time.Sleep(2 * listEvery)
		synctest.Wait()
		check.Equal(t, w.lists, 3, "after an answer, the lists are")
		w.set("lan", "10.0.0.2", false)
		wantOffer(t, ends, "a", "10.0.0.2")
	})
}

// TestAControllerThatKnowsNoWaits is one of a release before them, to which an upgrade went back: it never takes back what a
// later one has told. The ADD does not try that, and gets what the lists show.
func TestAControllerThatKnowsNoWaits(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		w.silent, w.stale = true, []v1alpha1.FreeAddress{{Pool: "lan", Address: "10.0.0.2", Version: "7"}} // it has a lease
		began := time.Now()
		time.AfterFunc(patience+time.Second, func() { w.server.set("lan", "10.0.0.3", false) })
		w.await(w.Enter(Key{"a", "eth0"}), "a", time.Minute, ends, lan)
		wantEnd(t, ends, "a", "10.0.0.3", time.Minute)
		check.Equal(t, time.Since(began), patience+listEvery, "it is offered after the second list, after")
	})
}

func TestTheWaitsOfWhichTheAgentTells(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		wan := w.full("wan", 1)
		began := time.Now()
		first := w.Enter(Key{"first", "eth0"})
		time.Sleep(time.Second)
		second := w.Enter(Key{"second", "eth0"})
		w.await(second, "second", time.Minute, ends, lan, wan)
		w.await(first, "first", time.Minute, ends, wan)
		says := func(when string, want ...string) {
			t.Helper()
			var got []string
			for _, wait := range w.Waits() {
				got = append(got, fmt.Sprint(wait.Pool, " ", wait.Since.Sub(began)))
			}
			check.List(t, got, want, "%s: it waits for", when)
		}
		says("two ADDs", "wan 0s", "lan 1s")
		select {
		case <-w.News:
		default:
			t.Error("there is no news")
		}
		first.Leave(true)
		says("the first one is served", "lan 1s", "wan 1s")
		second.Leave(false)
		says("the other one ends")
		var many []Pool
		for i := range v1alpha1.MaxHintWaits + 1 {
			many = append(many, w.full(fmt.Sprint("pool-", i), 1))
		}
		w.await(w.Enter(Key{"many", "eth0"}), "many", time.Minute, ends, many...)
		check.Equal(t, len(w.Waits()), v1alpha1.MaxHintWaits, "too many waits:")
	})
}

func TestAnAddressThatThePoolGetsLater(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		a := w.Enter(Key{"a", "eth0"})
		w.await(a, "a", time.Minute, ends, lan)
		// The controller knows of the larger pool first.
		larger := w.full("lan", 2)
		w.set("lan", "10.0.0.3", false)
		synctest.Wait()
		check.Equal(t, len(ends), 0, "offers of an address that the agent does not know:")
		w.Changed()
		check.That(t, !(<-ends).Addr.IsValid(), "the pool has changed")
		w.await(a, "a", time.Minute, ends, larger)
		wantOffer(t, ends, "a", "10.0.0.3")
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

// An ADD that wishes for an address neither holds back others of the pool, nor is held back by them.
func TestAWishHasAQueueOfItsOwn(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, w *world, lan Pool, ends chan outcome) {
		three := netip.MustParseAddr("10.0.0.3")
		wish := Pool{Name: "lan", Only: []netip.Addr{three}, Set: poolset.Of(three), Agents: 1}
		a, b := w.Enter(Key{"a", "eth0"}), w.Enter(Key{"b", "eth0"})
		w.await(a, "a", time.Minute, ends, wish)
		_, closed := w.Enter(Key{"c", "eth0"}).Closed("lan")
		check.That(t, !closed, "a wish closes the pool")
		w.await(b, "b", time.Minute, ends, lan)
		why, closed := w.Enter(Key{"c", "eth0"}).Closed("lan", three)
		check.That(t, closed, "a later pod with the same wish is not held back")
		check.Equal(t, why, "it is exhausted for this pod, 1 of the 1 addresses that it may have have a lease, and 1 pods of this node came earlier and wait for it", "the reason is")
		_, closed = w.Enter(Key{"c", "eth0"}).Closed("lan", three, three.Next())
		check.That(t, !closed, "another wish closes")
		var waits []string
		for _, wait := range w.Waits() {
			waits = append(waits, fmt.Sprint(wait.Pool, wait.Addresses))
		}
		check.Same(t, waits, []string{"lan[]", "lan[10.0.0.3]"}, "the questions are")
		check.Equal(t, w.waiting["lan"], 2, "counted ADDs:")

		w.set("lan", "10.0.0.2", false)
		wantOffer(t, ends, "b", "10.0.0.2")
		w.set("lan", "10.0.0.2", true)
		b.Leave(true)
		w.set("lan", "10.0.0.3", false)
		wantOffer(t, ends, "a", "10.0.0.3")
		a.Leave(true)
		check.That(t, len(w.Waits()) == 0 && w.waiting["lan"] == 0 && len(w.rooms) == 0, "left: %v, %d ADDs counted", w.rooms, w.waiting["lan"])
	})
}
