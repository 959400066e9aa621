package verify

import (
	"time"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// unknownFirst and unknownMost bound the back-off after Unknown: each try is
	// a claim, and the first one after a split has healed settles the address.
	unknownFirst = time.Second
	unknownMost  = 15 * time.Second
	// conflictFirst and conflictMost bound the back-off while somebody answers.
	conflictFirst = 10 * time.Second
	conflictMost  = 10 * time.Minute
	// apiRetry is between two tries while the API server is away.
	apiRetry = 2 * time.Second
)

// how says in which way a Quarantined lease is verified.
type how int

const (
	// byWire: claim and probe.
	byWire how = iota
	// bySilence: probe only, since nobody is known who could be claimed against (R4).
	bySilence
	// byTrust: the pool does not wait in quarantine.
	byTrust
)

// plan chooses the way. A pool that is gone is verified as strictly as any.
func plan(s *v1alpha1.IPLeaseSpec, mode v1alpha1.ConflictMode) how {
	switch {
	case !holder.HasPredecessor(s) && mode != v1alpha1.ModeOff:
		return bySilence
	case mode == v1alpha1.ModeEnforce:
		return byWire
	}
	return byTrust
}

// finding is what a verdict means for the record.
func finding(v segment.Verdict) lease.Finding {
	switch v {
	case segment.Fenced, segment.Silent:
		return lease.FindingSafe
	case segment.Answered:
		return lease.FindingAnswered
	}
	return lease.FindingUnknown
}

// untilFirst is how long a lease that was never looked at here is left alone:
// whoever set it aside for a conflict has just heard the answer. A clock that
// differs from theirs makes it no longer.
func untilFirst(s *v1alpha1.IPLeaseSpec, now time.Time) time.Duration {
	if s.Reason != v1alpha1.ReasonConflict || s.Conflict == nil {
		return 0
	}
	return min(s.Conflict.LastSeen.Add(conflictFirst).Sub(now), conflictFirst)
}

// backoff is how long to wait before a lease is looked at again, which was
// looked at tries times with this finding.
func backoff(f lease.Finding, tries int) time.Duration {
	first, most := unknownFirst, unknownMost
	if f == lease.FindingAnswered {
		first, most = conflictFirst, conflictMost
	}
	wait := first
	for range tries - 1 {
		if wait *= 2; wait >= most {
			return most
		}
	}
	return wait
}

// sentence is the evidence for people. How long nobody was heard is left out:
// a message that changes with each look would be written with each look.
func sentence(e segment.Evidence) string {
	if e.Heard && e.HeardAgo > segment.HearingWindow {
		e.HeardAgo = segment.HearingWindow + 1
	}
	return e.String()
}
