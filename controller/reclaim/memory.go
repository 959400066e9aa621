// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

// memory holds the reconciler's notes about leases between two looks. A new leader starts without
// notes. Its waits begin again, so it acts later, never earlier. Safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	notes map[string]*note
}

// note is the memory of one lease. There may be many leases, so it is small. The work queue gives a
// lease to one worker at a time, so a note has one user.
type note struct {
	uid types.UID
	// podAbsentSince and nodeAbsentSince are when the absence was first seen; nil while present.
	podAbsentSince, nodeAbsentSince *time.Time
	// finishedSince is when the pod was first seen to be finished; nil while it is not.
	finishedSince *time.Time
	// podSeen is the recorded UID of the holder whose pod was seen; empty if none was seen.
	podSeen string
	// assignment is nil while the lease is not Quarantined.
	assignment *assignment
	// rare is nil until one of its fields is set.
	rare *rareNote
}

// rareNote holds the notes that few leases need.
type rareNote struct {
	// agentAbsentSince is when the node of a Warm lease was first seen without a working agent.
	agentAbsentSince *time.Time
	// offeredSince is when a Service was first seen to offer the address of a pod that is gone.
	offeredSince *time.Time
	// withheld is the reason for which the lease was last due while reclaim was switched off.
	withheld v1alpha1.LeaseReason
}

// rarely returns the rare notes about a lease for writing.
func (n *note) rarely() *rareNote {
	if n.rare == nil {
		n.rare = &rareNote{}
	}
	return n.rare
}

// assignment records the verifier of a Quarantined lease.
type assignment struct {
	// quarantinedAt and verifier identify an assignment.
	quarantinedAt time.Time
	verifier      string
	askedAt       time.Time
	// awaySince is when the verifier was first seen not to be alive; nil while it is.
	awaySince *time.Time
	changes   int
}

func newMemory() *memory { return &memory{notes: map[string]*note{}} }

// about returns the note about a lease. Its assignment matches the lease.
func (m *memory) about(lease *v1alpha1.IPLease, now time.Time) *note {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.notes[lease.Name]
	if n == nil || n.uid != lease.UID {
		n = &note{uid: lease.UID}
		m.notes[lease.Name] = n
	}
	n.assignment = n.assignment.of(lease, now)
	return n
}

// of returns the assignment of a lease. It returns the receiver if the verifier has not changed.
func (a *assignment) of(lease *v1alpha1.IPLease, now time.Time) *assignment {
	if lease.Spec.State != v1alpha1.StateQuarantined {
		return nil
	}
	if since := lease.Spec.Since.Time; a == nil || !since.Equal(a.quarantinedAt) {
		return &assignment{quarantinedAt: since, verifier: lease.Spec.NodeName, askedAt: now}
	}
	if a.verifier != lease.Spec.NodeName {
		a.verifier, a.askedAt, a.awaySince = lease.Spec.NodeName, now, nil
	}
	return a
}

// forget drops the note about a lease that is gone.
func (m *memory) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.notes, name)
}

// passedOn records that the verifier's patience is over. The next verifier has more time.
func (a *assignment) passedOn(now time.Time) {
	a.changes++
	a.askedAt = now
}

// saw reports whether the holder's own pod existed at this look or at an earlier look.
func (n *note) saw(pod *podview.Pod, holder *v1alpha1.Holder) bool {
	if holder == nil || holder.PodUID == "" {
		return false
	}
	if pod != nil && isHolder(pod, holder.PodUID) {
		n.podSeen = holder.PodUID
	}
	return n.podSeen == holder.PodUID
}

// sawFinished returns when the pod was first seen as finished. It is zero for a pod that is not finished.
func (n *note) sawFinished(pod *podview.Pod, now time.Time) time.Time {
	return firstSeen(&n.finishedSince, pod != nil && pod.IsFinished(), now)
}

// firstSeen keeps and returns the time at which a state was first seen. It is zero if the state is
// not seen now.
func firstSeen(first **time.Time, seen bool, now time.Time) time.Time {
	if !seen {
		*first = nil
		return time.Time{}
	}
	if *first == nil {
		*first = &now
	}
	return **first
}
