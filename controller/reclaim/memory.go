package reclaim

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

// memory is what the reconciler remembers of leases between two looks. A new
// leader starts without: its waits begin anew, so it acts later, never earlier.
// Safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	notes map[string]*note
}

// note is about one lease, of which there may be many, so it is kept small. The
// work queue hands a lease to one worker at a time, so a note has one user.
type note struct {
	uid types.UID
	// podAbsentSince and nodeAbsentSince are when the absence was first seen; nil while present.
	podAbsentSince, nodeAbsentSince *time.Time
	// finishedSince is when the pod was first seen to be finished; nil while it is not.
	finishedSince *time.Time
	// podSeen is the recorded UID of the holder whose pod was seen; empty before.
	podSeen string
	// assignment is nil while the lease is not Quarantined.
	assignment *assignment
	// rare is nil until something of it is known.
	rare *rareNote
}

// rareNote is what most leases have none of.
type rareNote struct {
	// agentAbsentSince is when a Warm lease's node was first seen without an agent that works.
	agentAbsentSince *time.Time
	// offeredSince is when a Service was first seen to offer the address of a pod that is gone.
	offeredSince *time.Time
	// withheld is for what the lease was last found due while reclaim was switched off.
	withheld v1alpha1.LeaseReason
}

// rarely returns what is rare about a lease, to be written.
func (n *note) rarely() *rareNote {
	if n.rare == nil {
		n.rare = &rareNote{}
	}
	return n.rare
}

// assignment is the verifier of a Quarantined lease.
type assignment struct {
	// quarantinedAt and verifier tell one assignment from the next.
	quarantinedAt time.Time
	verifier      string
	askedAt       time.Time
	// awaySince is when the verifier was first seen not to be alive; nil while it is.
	awaySince *time.Time
	changes   int
}

func newMemory() *memory { return &memory{notes: map[string]*note{}} }

// about returns the note about a lease, brought up to date with the lease's assignment.
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

// of brings an assignment up to date with its lease.
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

// passedOn notes that the verifier's time was over: the next one has longer to
// answer Unknown.
func (a *assignment) passedOn(now time.Time) {
	a.changes++
	a.askedAt = now
}

// saw says whether the holder's own pod was there at this look or at an earlier one.
func (n *note) saw(pod *podview.Pod, holder *v1alpha1.Holder) bool {
	if holder == nil || holder.PodUID == "" {
		return false
	}
	if pod != nil && isHolder(pod, holder.PodUID) {
		n.podSeen = holder.PodUID
	}
	return n.podSeen == holder.PodUID
}

// sawFinished keeps the time at which the pod was first seen to be finished. It is
// zero while it is not.
func (n *note) sawFinished(pod *podview.Pod, now time.Time) time.Time {
	return firstSeen(&n.finishedSince, pod != nil && isFinished(pod), now)
}

// firstSeen keeps the time at which something was first seen. It is zero where
// it is not seen now.
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
