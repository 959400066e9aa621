// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"time"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// unknownFirst and unknownMost bound the back-off after Unknown. Each try sends a
	// claim, and the first claim after a split has healed settles the address.
	unknownFirst = time.Second
	unknownMost  = 15 * time.Second
	// conflictFirst and conflictMost bound the back-off while another host answers.
	conflictFirst = 10 * time.Second
	conflictMost  = 10 * time.Minute
	// holdMost bounds the back-off while the pod of a hold can neither be adopted nor is gone.
	holdMost = time.Minute
	// apiRetry is the pause between two tries while the API server is unavailable.
	apiRetry = 2 * time.Second
)

// how is the way of verifying a Quarantined lease.
type how int

const (
	// byWire: claim and probe.
	byWire how = iota
	// bySilence: probe only, since no predecessor is known to claim against (R4).
	bySilence
	// byTrust: the address does not wait in quarantine.
	byTrust
)

// plan chooses the way. The mode of a pool that was deleted is the strictest, Enforce. If the pool
// ignores the only host that was heard, nothing needs proof: the address was free before, and the
// next ADD probes it (R4). Silence would prove nothing on a parent that hears no other node (R2).
func plan(s *v1alpha1.IPLeaseSpec, pool *v1alpha1.IPPool) how {
	mode := pool.ConflictMode()
	switch {
	case !lease.HasPredecessor(s) && pool.IgnoresMAC(s.ConflictMAC()):
		return byTrust
	case !lease.HasPredecessor(s) && mode != v1alpha1.ModeOff:
		return bySilence
	case mode == v1alpha1.ModeEnforce:
		return byWire
	}
	return byTrust
}

// finding returns the meaning of a verdict for the lease.
func finding(v segment.Verdict) lease.Finding {
	switch v {
	case segment.Fenced, segment.Silent:
		return lease.FindingSafe
	case segment.Answered:
		return lease.FindingAnswered
	}
	return lease.FindingUnknown
}

// untilFirst returns the wait before this node's first look at a lease: the node
// that quarantined it for a conflict has just heard the answer. A difference of
// the two nodes' clocks cannot make it longer than conflictFirst.
func untilFirst(s *v1alpha1.IPLeaseSpec, now time.Time) time.Duration {
	if s.Reason != v1alpha1.ReasonConflict || s.Conflict == nil {
		return 0
	}
	return min(s.Conflict.LastSeen.Add(conflictFirst).Sub(now), conflictFirst)
}

// pause returns the wait before the next look, after a number of looks with this finding.
func pause(f lease.Finding, tries int) time.Duration {
	first, most := unknownFirst, unknownMost
	if f == lease.FindingAnswered {
		first, most = conflictFirst, conflictMost
	}
	return loop.Pause(first, most, tries)
}

// sentence returns the evidence for people. It omits the time for which the parent has heard no
// other node: a message that changes at each look would be written at each look.
func sentence(e segment.Evidence) string {
	if e.Heard && e.HeardAgo > segment.HearingWindow {
		e.HeardAgo = segment.HearingWindow + 1
	}
	return e.String()
}
