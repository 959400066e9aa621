// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

func TestWhoGetsAnAddressThatComesFree(t *testing.T) {
	now := time.Now()
	old, middle, young := now.Add(-80*time.Second), now.Add(-40*time.Second), now
	at := func(pool, addr string, since time.Duration, agents int, luck float64) vacancy {
		return vacancy{pool, netip.MustParseAddr(addr), now.Add(since), agents, luck}
	}
	of := func(arrived time.Time, pools ...string) waiter { return waiter{arrived, pools} }
	for rule, c := range map[string]struct {
		waiters   []waiter
		vacancies []vacancy
		gets      []int
		next      time.Duration // 0: none
	}{
		"nobody waits":           {nil, []vacancy{at("a", "10.0.0.2", 0, 1, 0)}, []int{}, 0},
		"nothing is free":        {[]waiter{of(old, "a")}, nil, []int{-1}, 0},
		"the first of two waits": {[]waiter{of(old, "a"), of(young, "a")}, []vacancy{at("a", "10.0.0.2", 0, 1, 0)}, []int{0, -1}, 0},
		"each of two gets one":   {[]waiter{of(old, "a"), of(young, "a")}, []vacancy{at("a", "10.0.0.2", 0, 1, 0), at("a", "10.0.0.3", 0, 1, 0)}, []int{0, 1}, 0},
		"another pool's waiter":  {[]waiter{of(old, "b"), of(young, "a")}, []vacancy{at("a", "10.0.0.2", 0, 1, 0)}, []int{-1, 0}, 0},
		"any of its pools":       {[]waiter{of(old, "b", "a")}, []vacancy{at("a", "10.0.0.2", 0, 1, 0)}, []int{0}, 0},
		"other agents get a moment, the older waiter the shorter one": {
			[]waiter{of(old, "a"), of(middle, "a")},
			[]vacancy{at("a", "10.0.0.2", 0, 10, .5), at("a", "10.0.0.3", 0, 10, .5)}, []int{-1, -1},
			delay(80*time.Second, at("a", "10.0.0.2", 0, 10, .5)),
		},
		"a later ADD does not overtake one that still leaves the address to other agents": {
			[]waiter{of(young, "a"), of(old, "a")}, // the order of arrival is given
			[]vacancy{at("a", "10.0.0.2", -100*time.Millisecond, 10, .5)}, []int{-1, -1},
			delay(-100*time.Millisecond, at("a", "10.0.0.2", 0, 10, .5)) - 100*time.Millisecond,
		},
		"the moment has passed":         {[]waiter{of(old, "a")}, []vacancy{at("a", "10.0.0.2", -time.Second, 5000, 1)}, []int{0}, 0},
		"a lost address waits a second": {[]waiter{of(old, "a")}, []vacancy{at("a", "10.0.0.2", time.Second, 1, 0)}, []int{-1}, time.Second},
		"the vacancy that is ready first": {
			[]waiter{of(old, "a")}, []vacancy{at("a", "10.0.0.2", 0, 10, 1), at("a", "10.0.0.3", -time.Second, 10, 0)}, []int{1}, 0,
		},
	} {
		t.Run(rule, func(t *testing.T) {
			gets, next := assign(now, c.waiters, c.vacancies)
			check.List(t, gets, c.gets, "gets")
			if c.next == 0 && !next.IsZero() || c.next != 0 && !next.Equal(now.Add(c.next)) {
				t.Errorf("next %v, want %v", next.Sub(now), c.next)
			}
		})
	}
}

func TestTheDelayIsBoundedAndShorterForOlderWaiters(t *testing.T) {
	v := vacancy{agents: 5000, luck: 1}
	check.Equal(t, delay(0, v), spreadMost, "the longest delay is")
	check.Equal(t, delay(time.Hour, v), spreadMost/2, "the delay of a very old waiter, which is half of the spread:")
	check.Equal(t, delay(0, vacancy{agents: 1, luck: 1}), 0, "a single agent waits for other agents:")
}
