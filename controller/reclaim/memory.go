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
	// podSeen is the recorded UID of the holder whose pod was seen; empty if none was seen.
	podSeen string
	// assignment is nil while the lease is not Quarantined.
	assignment *assignment
	// rare is nil until one of its fields is set.
	rare *rareNote
}

// rareNote holds the notes that few leases need.
type rareNote struct {
	// since has the time at which each true condition was first seen to be true.
	since map[condition]time.Time
	// withheld is the reason for which the lease was last due while reclaim was switched off.
	withheld v1alpha1.LeaseReason
	// turn: the address may be taken now. It ends with the take.
	turn bool
}

// condition is a state of the cluster on which a decision waits.
type condition int

const (
	absentPod condition = iota
	finishedPod
	absentNode
	// absentAgent: the node of a Warm lease has no working agent.
	absentAgent
	// offeredAddress: a Service offers the address of a pod that is gone.
	offeredAddress
)

// rarely returns the rare notes about a lease for writing.
func (n *note) rarely() *rareNote {
	if n.rare == nil {
		n.rare = &rareNote{since: map[condition]time.Time{}}
	}
	return n.rare
}

// assignment records the verifier of a Quarantined lease.
type assignment struct {
	// quarantinedAt and verifier identify an assignment.
	quarantinedAt time.Time
	verifier      string
	askedAt       time.Time
	// awaySince is when the verifier was first seen not to be alive; zero while it is.
	awaySince time.Time
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
	if n.rare != nil && lease.Spec.State == v1alpha1.StateQuarantined {
		n.rare.turn = false
	}
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
		a.verifier, a.askedAt, a.awaySince = lease.Spec.NodeName, now, time.Time{}
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

// sawAlive returns the time at which the verifier was first seen not to be alive. It is zero while it is.
func (a *assignment) sawAlive(alive bool, now time.Time) time.Time {
	if alive {
		a.awaySince = time.Time{}
	} else if a.awaySince.IsZero() {
		a.awaySince = now
	}
	return a.awaySince
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

// firstSeen returns the time at which a condition was first seen to be true. It is zero if the condition
// is false now.
func (n *note) firstSeen(c condition, isTrue bool, now time.Time) time.Time {
	if !isTrue {
		if n.rare != nil {
			delete(n.rare.since, c)
		}
		return time.Time{}
	}
	since := n.rarely().since
	if _, ok := since[c]; !ok {
		since[c] = now
	}
	return since[c]
}
