// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// End is the pause of a pass after which no other comes.
const End time.Duration = -1

// Loop repeats a pass that keeps something in order, until a context ends. A wake during a pass is not lost: it
// ends the next pause. One goroutine runs a Loop.
type Loop struct {
	Clock clock.Clock
	// Period is the pause before the next pass. Later: it also comes before the first one.
	Period time.Duration
	Later  bool
	// Wake ends a pause early. Gather is the time from a wake to the pass, in which other wakes have no further
	// effect. A loop without Wake never wakes.
	Wake   <-chan struct{}
	Gather time.Duration
	// First and Most bound the pause after a failure, as in Backoff. Without First it is Period.
	First, Most time.Duration
	// Failed handles an error whose text differs from that of the pass before. It may be nil.
	Failed func(error)
}

// Every repeats a pass without a failure. It returns nil.
func (l Loop) Every(ctx context.Context, pass func(context.Context)) error {
	return l.Try(ctx, func(ctx context.Context) error { pass(ctx); return nil })
}

// Try repeats a pass that may fail. It returns nil.
func (l Loop) Try(ctx context.Context, pass func(context.Context) error) error {
	return l.Pace(ctx, func(ctx context.Context) (time.Duration, error) { return 0, pass(ctx) })
}

// Pace repeats a pass that returns the pause until the next one; 0: as the Loop says. After End, Pace returns the
// error of the pass, and otherwise nil.
func (l Loop) Pace(ctx context.Context, pass func(context.Context) (time.Duration, error)) error {
	tries := Backoff{First: l.First, Most: l.Most}
	if l.Later {
		l.rest(ctx, l.Period)
	}
	for ctx.Err() == nil {
		pause, err := pass(ctx)
		if pause == End {
			return err
		}
		if pause == 0 {
			pause = l.Period
			if err != nil && l.First > 0 {
				pause = tries.Next()
			}
		}
		if err == nil {
			tries.Reset()
		} else if ctx.Err() == nil && tries.IsNew(err) && l.Failed != nil {
			l.Failed(err)
		}
		l.rest(ctx, pause)
	}
	return nil
}

// rest takes the wakes of the time in which it gathers: the next pass sees what they are about.
func (l Loop) rest(ctx context.Context, d time.Duration) {
	if For(ctx, l.Clock, d, l.Wake) && l.Gather > 0 {
		For(ctx, l.Clock, l.Gather, nil)
		select {
		case <-l.Wake:
		default:
		}
	}
}
