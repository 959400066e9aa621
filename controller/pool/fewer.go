// SPDX-License-Identifier: Apache-2.0

package pool

import "time"

// fewerGrace is the time for which there must be fewer agents before a pool publishes the lower number.
// The replacement of an agent takes a minute. If the pool published during this minute that the other
// agent is alone, that agent would accept silence as proof although it has heard no other agent (R2).
const fewerGrace = 10 * time.Minute

// shortfall begins with the first pass that counts fewer agents than a pool publishes. A new leader
// publishes the lower number later, never earlier.
type shortfall struct {
	said  int
	since time.Time
	// most is the greatest count since then. An agent that disappears later has its own grace.
	most int
}

// agents returns the number of agents that a pool publishes, and the time until the number may be
// lower; 0 means that there is nothing to wait for.
func (n *notes) agents(pool string, said, counted int, now time.Time) (agents int, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	note := n.of(pool)
	if counted >= said {
		note.fewer = nil
		return counted, 0
	}
	// The pool has published the lower number, perhaps without a pass in between.
	if note.fewer == nil || note.fewer.said != said {
		note.fewer = &shortfall{said: said, since: now}
	}
	s := note.fewer
	s.most = max(s.most, counted)
	if wait := s.since.Add(fewerGrace).Sub(now); wait > 0 {
		return said, wait
	}
	if counted < s.most {
		// The grace of the other agents begins after this write.
		return s.most, minInterval
	}
	return s.most, 0
}
