package revision

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// store is a store of which only the revision matters.
type store struct {
	client.Reader
	live atomic.Uint64
	away atomic.Bool
}

func (s *store) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if s.away.Load() {
		return errors.New("away")
	}
	list.SetResourceVersion(strconv.FormatUint(s.live.Load(), 10))
	return nil
}

// rig is a watch that runs.
type rig struct {
	store  *store
	cached atomic.Uint64
	asked  chan uint64
	ended  chan error
	clock  *testclock.FakeClock
	conns  *Connections
}

func start(t *testing.T, live uint64) *rig {
	r := &rig{store: &store{}, asked: make(chan uint64, 8), ended: make(chan error, 1),
		clock: testclock.NewFakeClock(time.Now()), conns: NewConnections()}
	r.store.live.Store(live)
	w := &Watch{Reader: r.store, Clock: r.clock, Connections: r.conns,
		Cached: func(context.Context) (uint64, error) { return r.cached.Load(), nil },
		Live:   func(live uint64) { r.asked <- live },
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go func() { r.ended <- w.Start(ctx) }()
	r.hears(t, live)
	return r
}

func (r *rig) hears(t *testing.T, want uint64) {
	t.Helper()
	select {
	case got := <-r.asked:
		if got != want {
			t.Fatalf("heard %d, want %d", got, want)
		}
	case err := <-r.ended:
		t.Fatalf("the watch ended: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("the store was not asked")
	}
}

func (r *rig) ends(t *testing.T, known, live uint64) {
	t.Helper()
	select {
	case err := <-r.ended:
		back, ok := errors.AsType[*WentBackError](err)
		if !ok || *back != (WentBackError{known, live}) {
			t.Fatalf("ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the watch goes on")
	}
}

// connect makes the store be asked at once.
func (r *rig) connect(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := r.conns.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestAProcessGoesOnWhileTheStoreGoesForward(t *testing.T) {
	r := start(t, 100)
	for _, live := range []uint64{100, 101, 1_000_000_000} {
		r.store.live.Store(live)
		r.cached.Store(live)
		r.connect(t)
		r.hears(t, live)
	}
}

func TestAProcessEndsAtTheFirstConnectionToAStoreThatWentBack(t *testing.T) {
	r := start(t, 100)
	r.store.live.Store(99)
	r.connect(t)
	r.ends(t, 100, 99)
}

func TestAProcessEndsWhenItsCachesHoldWhatTheStoreHasLost(t *testing.T) {
	r := start(t, 100)
	r.cached.Store(150) // read since the store was asked
	r.store.live.Store(120)
	r.connect(t)
	r.ends(t, 150, 120)
}

func TestTheStoreIsAskedFromTimeToTimeAndAgainSoonWhileItIsAway(t *testing.T) {
	r := start(t, 100)
	r.store.away.Store(true)
	step := func(d time.Duration) {
		for !r.clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		r.clock.Step(d)
	}
	step(period)
	step(retry)
	r.store.away.Store(false)
	step(retry)
	r.hears(t, 100)
}
