// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// FramesPerMillisecond is the limit for all probes and claims of a segment together. Faster bursts
// overflow the broadcast queues of macvlan, and after a lost probe an address looks free.
const FramesPerMillisecond = 256

// Pacer sends one frame at a time, and never more than FramesPerMillisecond within one millisecond.
// Safe for concurrent use. It serves waiting callers in no particular order.
type Pacer struct {
	clock clock.Clock
	// turn holds one token. The goroutine that takes it may send.
	turn chan struct{}
	// sent are the times of the last frames, with the oldest at next. Guarded by turn.
	sent [FramesPerMillisecond]time.Time
	next int
}

func NewPacer(c clock.Clock) *Pacer {
	p := &Pacer{clock: c, turn: make(chan struct{}, 1)}
	p.turn <- struct{}{}
	return p
}

// Do waits for its turn and calls send. The wait ends early with ctx.
func (p *Pacer) Do(ctx context.Context, send func() error) error {
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	oldest := p.sent[p.next]
	if err := Sleep(ctx, p.clock, oldest.Add(time.Millisecond).Sub(p.clock.Now())); err != nil {
		return err
	}
	err := send()
	p.sent[p.next] = p.clock.Now()
	p.next = (p.next + 1) % FramesPerMillisecond
	return err
}

// Sleep waits for d, or returns the cause that ended ctx.
func Sleep(ctx context.Context, c clock.Clock, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
