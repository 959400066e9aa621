package verify

import (
	"time"

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
)

// how says in which way a Quarantined lease is verified.
type how int

const (
	// byWire: claim and probe.
	byWire how = iota
	// bySilence: probe only. Nobody is claimed against who never was a holder:
	// a pod whose record was lost answers too (R4).
	bySilence
	// byTrust: the pool does not wait in quarantine.
	byTrust
)

// plan chooses the way. A pool that is gone is verified as strictly as any.
func plan(s *v1alpha1.IPLeaseSpec, mode v1alpha1.ConflictMode) how {
	switch {
	case s.Reason == v1alpha1.ReasonConflict && s.Previous == nil && mode != v1alpha1.ModeOff:
		return bySilence
	case mode == v1alpha1.ModeEnforce:
		return byWire
	}
	return byTrust
}

// asserted tells whether Kubernetes or a person vouches for the last holder's end.
func asserted(s *v1alpha1.IPLeaseSpec) bool {
	reason := s.Reason
	if s.Previous != nil && s.Previous.Reason != "" {
		reason = s.Previous.Reason
	}
	return reason == v1alpha1.ReasonNodeGone || reason == v1alpha1.ReasonOutOfService ||
		s.Reason == v1alpha1.ReasonNodeGone || s.Reason == v1alpha1.ReasonOutOfService
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
