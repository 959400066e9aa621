// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestTheWayOfAVerification(t *testing.T) {
	previous := &v1alpha1.PreviousHolder{Node: "n2"}
	for _, test := range []struct {
		name     string
		reason   v1alpha1.LeaseReason
		previous *v1alpha1.PreviousHolder
		// want by the modes Enforce, Observe and Off.
		want [3]how
	}{
		{"a holder that the controller took it from", v1alpha1.ReasonPodTerminating, previous, [3]how{byWire, byTrust, byTrust}},
		{"a take-over that found no proof", v1alpha1.ReasonUnverified, previous, [3]how{byWire, byTrust, byTrust}},
		{"a retained address that somebody answered for", v1alpha1.ReasonUnverified, nil, [3]how{byWire, byTrust, byTrust}},
		{"a stranger at ADD: nobody to claim against (R4)", v1alpha1.ReasonConflict, nil, [3]how{bySilence, bySilence, byTrust}},
		{"another IPAM's record without a pod", v1alpha1.ReasonMovingIn, nil, [3]how{bySilence, bySilence, byTrust}},
		{"a stranger after a holder", v1alpha1.ReasonConflict, previous, [3]how{byWire, byTrust, byTrust}},
	} {
		for i, mode := range []v1alpha1.ConflictMode{v1alpha1.ModeEnforce, v1alpha1.ModeObserve, v1alpha1.ModeOff} {
			pool := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{ConflictDetection: &v1alpha1.ConflictDetection{Mode: mode}}}
			check.Equal(t, plan(&v1alpha1.IPLeaseSpec{Reason: test.reason, Previous: test.previous}, pool), test.want[i], "%s, %s:", test.name, mode)
		}
	}
}

func TestAnAddressOfAHostThatThePoolIgnoresDoesNotWait(t *testing.T) {
	const proxy = "02:00:5e:00:00:01"
	ignores := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{ConflictDetection: &v1alpha1.ConflictDetection{
		Mode: v1alpha1.ModeEnforce, IgnoreMACs: []string{proxy},
	}}}
	for name, c := range map[string]struct {
		mac      string
		previous *v1alpha1.PreviousHolder
		want     how
	}{
		"the host that answered is ignored": {proxy, nil, byTrust},
		"another host answered":             {"02:00:5e:00:00:02", nil, bySilence},
		"it answered after a holder (R1)":   {proxy, &v1alpha1.PreviousHolder{Node: "n2"}, byWire},
	} {
		t.Run(name, func(t *testing.T) {
			s := &v1alpha1.IPLeaseSpec{State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonConflict, Previous: c.previous, Conflict: &v1alpha1.Conflict{MAC: c.mac}}
			check.Equal(t, plan(s, ignores), c.want, "got")
		})
	}
}

func TestWhatAVerdictMeansForTheRecord(t *testing.T) {
	for verdict, want := range map[segment.Verdict]lease.Finding{
		segment.Fenced: lease.FindingSafe, segment.Silent: lease.FindingSafe,
		segment.Answered: lease.FindingAnswered, segment.Unknown: lease.FindingUnknown, "": lease.FindingUnknown,
	} {
		check.Equal(t, finding(verdict), want, "%s:", verdict)
	}
}

func TestTheBackOffDoublesAndEnds(t *testing.T) {
	for _, test := range []struct {
		finding     lease.Finding
		first, most time.Duration
	}{
		{lease.FindingUnknown, time.Second, 15 * time.Second},
		{lease.FindingAnswered, 10 * time.Second, 10 * time.Minute},
	} {
		last := time.Duration(0)
		for tries := 1; tries <= 100; tries++ {
			wait := pause(test.finding, tries)
			check.Equal(t, wait, min(test.most, max(test.first, 2*last)), "finding %d, try %d: wait", test.finding, tries)
			last = wait
		}
	}
}

// Each look at a deaf parent would otherwise be a write.
func TestTheSentenceAboutADeafParentStaysTheSame(t *testing.T) {
	deaf := func(ago time.Duration) string {
		return sentence(segment.Evidence{Carrier: true, Observed: true, OthersShare: true, Unanswered: segment.MinRounds, Heard: true, HeardAgo: ago})
	}
	a, b := deaf(3*time.Minute), deaf(time.Hour)
	check.That(t, a == b, "%q, then %q", a, b)
}

func TestAFreshConflictIsLeftAlone(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	conflict := func(seen time.Time) *v1alpha1.IPLeaseSpec {
		return &v1alpha1.IPLeaseSpec{Reason: v1alpha1.ReasonConflict, Conflict: &v1alpha1.Conflict{LastSeen: metav1.NewTime(seen)}}
	}
	for _, row := range []struct {
		name string
		of   *v1alpha1.IPLeaseSpec
		want time.Duration
	}{
		{"for as long as between the first two looks", conflict(now), conflictFirst},
		{"less when it was met a while ago", conflict(now.Add(-4 * time.Second)), 6 * time.Second},
		{"not at all after a restart of the agent", conflict(now.Add(-time.Hour)), conflictFirst - time.Hour},
		{"no longer because somebody's clock is ahead", conflict(now.Add(time.Hour)), conflictFirst},
		{"another reason is looked at at once", &v1alpha1.IPLeaseSpec{Reason: v1alpha1.ReasonPodGone}, 0},
	} {
		t.Run(row.name, func(t *testing.T) { check.Equal(t, untilFirst(row.of, now), row.want, "left alone for") })
	}
}
