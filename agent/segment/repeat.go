// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"maps"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

const (
	// repeatMin and repeatMax bound the time between two claims of a holder (R3). Twice the longest
	// one is shorter than HearingWindow, so that one claim may be lost.
	repeatMin, repeatMax = 45 * time.Second, 57 * time.Second
	// repeatTick is how often repeat checks the schedule.
	repeatTick = time.Second
)

// repeat claims every address of the holder about once a minute, until ctx ends (R3).
func (s *Segments) repeat(ctx context.Context, holder Holder) {
	due := make(schedule)
	for {
		if err := Sleep(ctx, s.clock, repeatTick); err != nil {
			return
		}
		for _, h := range due.next(s.clock.Now(), holder.Holdings(), s.jitter) {
			if ctx.Err() != nil {
				return
			}
			s.repeatClaim(ctx, h)
		}
	}
}

// repeatClaim sends one claim for a holding, unless it is fenced or its slot is dead: such a claim
// would only make the new holder defend itself.
func (s *Segments) repeatClaim(ctx context.Context, h Holding) {
	seg, ok := s.Get(h.Parent)
	if !ok {
		return
	}
	silent, err := s.mustBeSilent(h.key(), h.Slot)
	if err == nil && !silent {
		err = seg.claimOnce(ctx, h.claim(), nil)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Info("cannot repeat a claim", "address", h.Addr.String(), "parent", seg.name, "reason", err.Error())
	}
}

// schedule holds the time of the next claim for each holding. It belongs to one goroutine.
type schedule map[bpf.Key]time.Time

// next returns the holdings that are due and plans their next claim; jitter returns 0 to 1. A new
// holding is due within one interval: its first claims were sent when it was bound, or the agent
// has just started, and other nodes need the evidence. next forgets what is no longer held.
func (s schedule) next(now time.Time, held []Holding, jitter func() float64) []Holding {
	var due []Holding
	present := make(map[bpf.Key]bool, len(held))
	for _, h := range held {
		if !claims(h.Mode) {
			continue
		}
		key := h.key()
		present[key] = true
		at, known := s[key]
		switch {
		case !known:
			s[key] = now.Add(Between(0, repeatMax, jitter()))
		case !at.After(now):
			due = append(due, h)
			s[key] = now.Add(Between(repeatMin, repeatMax, jitter()))
		}
	}
	maps.DeleteFunc(s, func(key bpf.Key, _ time.Time) bool { return !present[key] })
	return due
}
