// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
)

// store is a store of which only the revision matters.
type store struct {
	client.Reader
	live    atomic.Uint64
	away    atomic.Bool
	refused atomic.Int64 // questions while it is away
}

func (s *store) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if s.away.Load() {
		s.refused.Add(1)
		return errors.New("away")
	}
	list.SetResourceVersion(strconv.FormatUint(s.live.Load(), 10))
	return nil
}

// rig is a watch that runs.
type rig struct {
	store   *store
	cached  atomic.Uint64
	known   atomic.Uint64
	asked   chan uint64
	ended   chan error
	clock   *testclock.FakeClock
	outages *Outages
	back    atomic.Int64 // calls of Back
	spread  atomic.Int64
}

func start(t *testing.T, live uint64) *rig {
	r := &rig{store: &store{}, asked: make(chan uint64, 8), ended: make(chan error, 1),
		clock: testclock.NewFakeClock(time.Now()), outages: NewOutages()}
	r.store.live.Store(live)
	w := &RevisionWatch{Reader: r.store, Clock: r.clock, Outages: r.outages,
		Cached: func(context.Context) (uint64, error) { return r.cached.Load(), nil },
		Known:  r.known.Store,
		Live:   func(live uint64) { r.asked <- live },
		Back:   func() { r.back.Add(1) },
		Spread: func() time.Duration { return time.Duration(r.spread.Load()) },
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
		check.Must(t, got == want, "heard %d, want %d", got, want)
	case err := <-r.ended:
		t.Fatalf("the watch ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the store was not asked")
	}
}

func (r *rig) ends(t *testing.T, known, live uint64) {
	t.Helper()
	select {
	case err := <-r.ended:
		back, ok := errors.AsType[*WentBackError](err)
		check.Must(t, ok && *back == (WentBackError{known, live}), "ended with %v", err)
	case <-time.After(time.Minute):
		t.Fatal("the watch goes on")
	}
}

// answer passes one answer of the API server through the transport.
func (r *rig) answer(t *testing.T, status int, failure error) {
	t.Helper()
	through := r.outages.Transport(promhttp.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
		if failure != nil {
			return nil, failure
		}
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	}))
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api", nil))(t)
	if response, err := through.RoundTrip(request); err == nil {
		response.Body.Close()
	}
}

// outage is one that ends.
func (r *rig) outage(t *testing.T) {
	t.Helper()
	r.answer(t, 0, errors.New("connection refused"))
	r.answer(t, http.StatusOK, nil)
}

func TestAProcessGoesOnWhileTheStoreGoesForward(t *testing.T) {
	r := start(t, 100)
	for _, live := range []uint64{100, 101, 1_000_000_000} {
		r.store.live.Store(live)
		r.cached.Store(live)
		r.outage(t)
		r.hears(t, live)
	}
}

func TestAProcessEndsAfterTheOutageInWhichTheStoreWentBack(t *testing.T) {
	r := start(t, 100)
	r.store.live.Store(99)
	r.outage(t)
	r.ends(t, 100, 99)
}

// The kernel is told the newest revision before the process ends: a token that only the caches have
// shown was given by the store.
func TestTheNewestRevisionIsToldBeforeTheProcessEnds(t *testing.T) {
	r := start(t, 100)
	r.cached.Store(150) // read since the store was asked
	r.store.live.Store(120)
	r.outage(t)
	r.ends(t, 150, 120)
	check.Equal(t, r.known.Load(), 150, "the revision that was told:")
}

func TestTheStoreIsAskedFromTimeToTimeAndAgainSoonWhileItIsAway(t *testing.T) {
	r := start(t, 100)
	r.store.away.Store(true)
	step := func(d time.Duration) {
		check.Becomes(t, time.Minute, "the watch waits", r.clock.HasWaiters)
		r.clock.Step(d)
	}
	step(period)
	step(retry)
	r.store.away.Store(false)
	step(retry)
	r.hears(t, 100)
}

// TestTheEndOfAnOutageIsTold once, and not of each of many outages.
func TestTheEndOfAnOutageIsTold(t *testing.T) {
	r := start(t, 100)
	waits := func() { check.Becomes(t, time.Minute, "the watch waits", r.clock.HasWaiters) }
	waits()
	check.Equal(t, r.back.Load(), 0, "without an outage, told")
	told := func(want int64) {
		check.Becomes(t, time.Minute, fmt.Sprintf("it is told %d times", want), func() bool { return r.back.Load() == want })
	}
	r.outage(t)
	r.hears(t, 100)
	told(1)
	r.outage(t)
	r.hears(t, 100)
	waits()
	check.Equal(t, r.back.Load(), 1, "soon after another outage, told")
	r.clock.Step(quiet)
	r.hears(t, 100)
	told(2)
	waits()
	r.clock.Step(period)
	r.hears(t, 100)
	waits()
	check.Equal(t, r.back.Load(), 2, "without another outage, told")
}

// TestManyProcessesDoNotReadTogetherAfterAnOutage: each waits a time of its own, anew if the server was away again.
func TestManyProcessesDoNotReadTogetherAfterAnOutage(t *testing.T) {
	const spread, part = 3 * time.Second, time.Second
	r := start(t, 100)
	step := func(what string, d time.Duration, want int64) {
		t.Helper()
		check.Becomes(t, time.Minute, "the watch waits", r.clock.HasWaiters)
		check.Equal(t, r.back.Load(), want, "%s: told", what)
		r.clock.Step(d)
	}
	r.spread.Store(int64(spread))
	r.outage(t)
	r.hears(t, 100)
	step("at its end", spread-part, 0)
	r.outage(t) // in which the store was not asked
	r.hears(t, 100)
	r.store.away.Store(true)
	r.outage(t)
	check.Becomes(t, time.Minute, "the store is asked", func() bool { return r.store.refused.Load() == 1 })
	r.store.away.Store(false)
	step("away again", retry, 0)
	r.hears(t, 100)
	step("at the next end", spread-part, 0)
	step("before that time", part, 0)
	r.hears(t, 100)
	check.Becomes(t, time.Minute, "it is told", func() bool { return r.back.Load() == 1 })
}

func TestARequestThatRunsOutOfTimeShowsAnOutageOnlyIfNoneWasAnsweredMeanwhile(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		o, inside := NewOutages(), false
		var through http.RoundTripper
		through = o.Transport(promhttp.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
			if inside {
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			}
			if inside = true; meanwhile {
				other := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil))(t)
				response, err := through.RoundTrip(other)
				check.OK(t, err)
				response.Body.Close()
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := through.RoundTrip(check.Value(http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil))(t)) //nolint:bodyclose // there is none
		cancel()
		_, away := o.Since()
		check.That(t, err != nil && away == !meanwhile, "another was answered: %v, away: %v, %v", meanwhile, away, err)
	}
}

func TestAnOutageIsOverWithTheFirstAnswer(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer func(*rig, *testing.T)
		over   bool
	}{
		{"answers only", func(r *rig, t *testing.T) { r.answer(t, 200, nil); r.answer(t, 404, nil); r.answer(t, 409, nil) }, false},
		{"no connection, then an answer", func(r *rig, t *testing.T) { r.outage(t) }, true},
		{"no server behind a proxy, then an answer", func(r *rig, t *testing.T) { r.answer(t, 503, nil); r.answer(t, 200, nil) }, true},
		{"no answer yet", func(r *rig, t *testing.T) { r.answer(t, 503, nil) }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := &rig{outages: NewOutages()}
			row.answer(r, t)
			check.Equal(t, len(r.outages.over) == 1, row.over, "over:")
		})
	}
}
