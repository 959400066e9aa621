// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"
	"time"
)

func TestFewerAgentsAreToldOfOnceTheyAreNotMerelyReplaced(t *testing.T) {
	f, now := newFewer(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		name          string
		after         time.Duration
		said, counted int
		agents        int
		wait          time.Duration
	}{
		{"the first count", 0, 0, 2, 2, 0},
		{"one is replaced", time.Second, 2, 1, 2, fewerGrace},
		{"it is not back yet", time.Minute, 2, 1, 2, fewerGrace - time.Minute},
		{"it is back", time.Minute, 2, 2, 2, 0},
		{"it is replaced again: the time begins anew", time.Minute, 2, 1, 2, fewerGrace},
		{"and stays away", fewerGrace, 2, 1, 1, 0},
		{"the same, not written yet", time.Second, 2, 1, 1, 0},
		{"written", time.Second, 1, 1, 1, 0},
		{"another is more at once", time.Second, 1, 3, 3, 0},
		{"none is left: one has gone, and another", time.Second, 3, 0, 3, fewerGrace},
	} {
		now = now.Add(step.after)
		if agents, wait := f.agents("blue", step.said, step.counted, now); agents != step.agents || wait != step.wait {
			t.Errorf("%s: %d agents, wait %s; want %d, %s", step.name, agents, wait, step.agents, step.wait)
		}
	}
	f.forget("blue")
	if _, wait := f.agents("blue", 3, 0, now.Add(time.Hour)); wait != fewerGrace {
		t.Errorf("a pool that was made anew waits %s", wait)
	}
}

// One that is gone for good must not let the next that is replaced be told of at once.
func TestEachAgentThatIsGoneHasTheWholeTimeToComeBack(t *testing.T) {
	for _, row := range []struct {
		name  string
		steps []count
	}{
		{"nobody looked at the pool between", []count{
			{0, 3, 2, 3, fewerGrace}, {fewerGrace, 3, 2, 2, 0},
			{time.Hour, 2, 1, 2, fewerGrace}, {time.Minute, 2, 2, 2, 0},
		}},
		{"as the time of the other ends", []count{
			{0, 3, 2, 3, fewerGrace}, {fewerGrace - time.Second, 3, 1, 3, time.Second},
			{time.Second, 3, 1, 2, minInterval}, {minInterval, 2, 1, 2, fewerGrace}, {fewerGrace, 2, 1, 1, 0},
		}},
		{"which is not written yet", []count{
			{0, 3, 2, 3, fewerGrace}, {fewerGrace, 3, 2, 2, 0}, {time.Second, 3, 1, 2, minInterval},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, now := newFewer(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for i, s := range row.steps {
				now = now.Add(s.after)
				if agents, wait := f.agents("blue", s.said, s.counted, now); agents != s.agents || wait != s.wait {
					t.Fatalf("step %d: %d agents, wait %s; want %d, %s", i, agents, wait, s.agents, s.wait)
				}
			}
		})
	}
}

// count is what a look finds after a while, and what comes of it.
type count struct {
	after                 time.Duration
	said, counted, agents int
	wait                  time.Duration
}
