// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/test/check"
)

// result is what a pass returns at a time. wake: a change comes during the pass.
type result struct {
	pause time.Duration
	err   error
	wake  bool
}

func TestTheLoopPacesItsPasses(t *testing.T) {
	const s = time.Second
	failed, full, over := errors.New("failed"), errors.New("full"), errors.New("over")
	ok, bad, end := result{}, result{err: failed}, result{pause: End, err: over}
	for _, row := range []struct {
		name   string
		loop   Loop
		passes []result
		// wakes are the times of changes, at those of the passes.
		wakes, at []time.Duration
		logged    string
	}{
		{"the first pass comes at once", Loop{Period: s}, []result{ok, ok, end}, nil, []time.Duration{0, s, 2 * s}, "[]"},
		{"or later", Loop{Period: s, Later: true}, []result{ok, end}, nil, []time.Duration{s, 2 * s}, "[]"},
		{"a wake comes before the first pass", Loop{Period: 3 * s, Later: true}, []result{end}, []time.Duration{s}, []time.Duration{s}, "[]"},
		{"a pass sets its pause", Loop{Period: s}, []result{{pause: 5 * s}, {pause: 7 * s, err: failed}, end}, nil, []time.Duration{0, 5 * s, 12 * s}, "[failed]"},
		{"without a back-off the period counts", Loop{Period: s}, []result{bad, bad, end}, nil, []time.Duration{0, s, 2 * s}, "[failed]"},
		{
			"failures in a row lengthen the pause", Loop{Period: 9 * s, First: s, Most: 3 * s},
			[]result{bad, bad, bad, {err: full}, ok, bad, end}, nil,
			[]time.Duration{0, s, 3 * s, 6 * s, 9 * s, 18 * s, 19 * s}, "[failed full failed]",
		},
		{"a wake ends a pause", Loop{Period: 9 * s}, []result{ok, ok, end}, []time.Duration{2 * s}, []time.Duration{0, 2 * s, 11 * s}, "[]"},
		{"a wake ends the pause of a failure", Loop{Period: 9 * s, First: 5 * s, Most: 9 * s}, []result{bad, end}, []time.Duration{s}, []time.Duration{0, s}, "[failed]"},
		{"a wake during a pass is not lost", Loop{Period: 9 * s}, []result{{wake: true}, ok, end}, nil, []time.Duration{0, 0, 9 * s}, "[]"},
		{
			"changes are gathered", Loop{Period: 9 * s, Gather: s}, []result{ok, ok, end},
			[]time.Duration{2 * s, 2500 * time.Millisecond}, []time.Duration{0, 3 * s, 12 * s}, "[]",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var at []time.Duration
				logged := []error{}
				wake, l := NewWake(), row.loop
				l.Clock, l.Wake = clock.RealClock{}, wake
				l.Failed = func(err error) { logged = append(logged, err) }
				for _, d := range row.wakes {
					time.AfterFunc(d, wake.Up)
				}
				err := l.Pace(t.Context(), func(context.Context) (time.Duration, error) {
					r := row.passes[len(at)]
					at = append(at, time.Since(began))
					if r.wake {
						wake.Up()
					}
					return r.pause, r.err
				})
				check.Is(t, err, over, "the end of the last pass:")
				check.Same(t, at, row.at, "times of the passes")
				check.Equal(t, fmt.Sprint(logged), row.logged, "logged:")
			})
		})
	}
}

func TestTheEndOfTheContextEndsTheLoop(t *testing.T) {
	for _, row := range []struct {
		name string
		loop Loop
		// after is the time of the end, and passes the number of passes before.
		after  time.Duration
		passes int
	}{
		{"during the pause before the first pass", Loop{Period: time.Minute, Later: true}, time.Second, 0},
		{"during a pass", Loop{Period: time.Minute}, 0, 1},
		{"during a pause", Loop{Period: time.Minute}, time.Second, 1},
		{"while it gathers", Loop{Period: time.Second, Wake: woken(), Gather: time.Minute}, time.Second, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				passes := 0
				if row.after > 0 {
					time.AfterFunc(row.after, end)
				}
				row.loop.Clock = clock.RealClock{}
				row.loop.Failed = func(error) { t.Error("the end of the context is logged as a failure") }
				began := time.Now()
				check.OK(t, row.loop.Try(ctx, func(ctx context.Context) error {
					passes++
					if row.after == 0 {
						end()
					}
					return ctx.Err()
				}))
				end()
				check.Equal(t, time.Since(began), row.after, "the end:")
				check.Equal(t, passes, row.passes, "passes:")
			})
		})
	}
}

func woken() Wake {
	w := NewWake()
	w.Up()
	return w
}
