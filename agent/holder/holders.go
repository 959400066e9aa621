// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/holder/pending"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/audit"
)

// Holders are the pod interfaces of this node with their addresses. Its
// methods may be called concurrently.
type Holders struct {
	Options

	// Pending are the attachments that recovery has to resume.
	Pending *pending.Set

	// attachments serializes the plugin's calls and recovery for one attachment.
	// leases serializes a take-over and a verification of one lease; it is taken second.
	attachments locks[agentapi.Attachment]
	leases      locks[string]
	overtaken   overtaken
	unanswered  unanswered
	underWay    underWay
	ignored     ignored

	// sources in the order in which an ADD asks them.
	sources []source
	// expected has the interfaces whose next sandbox may get the address of an earlier one.
	expected expected
	// away is set while the last ADD could not reach the API server.
	away atomic.Bool
	// background outlives a call; undo runs in it. tasks are the steps that ADDs
	// leave for the time after their answer.
	background context.Context
	tasks      sync.WaitGroup
	// following is the part of background in which the MACs of new interfaces are read.
	following    context.Context
	endFollowing context.CancelFunc
}

// New returns the Holders that the journal records. The undo of an ADD and the steps
// after an answer end with ctx.
func New(ctx context.Context, o Options) *Holders {
	h := &Holders{Options: o, sources: sources(), Pending: pending.New(), background: ctx}
	h.following, h.endFollowing = context.WithCancel(ctx)
	return h
}

// Wait returns once the steps after the answers of all ADDs are done. It ends the readings of MACs.
// No ADD may be under way.
func (h *Holders) Wait() {
	h.endFollowing()
	h.tasks.Wait()
}

// Bound yields the entries whose interfaces hold addresses now. They are read-only.
func (h *Holders) Bound() iter.Seq[*journal.Entry] {
	return func(yield func(*journal.Entry) bool) {
		for _, e := range h.Journal.All() {
			if e.Phase == journal.Bound && e.Session == h.Session && !yield(e) {
				return
			}
		}
	}
}

// Holder returns the entry that holds an address on this node, if there is one.
func (h *Holders) Holder(key bpf.Key) (journal.Entry, journal.Address, bool) {
	for e := range h.Bound() {
		for _, address := range e.Addresses {
			if guards.Key(e, address) == key {
				return *e, address, true
			}
		}
	}
	return journal.Entry{}, journal.Address{}, false
}

// Fenced handles a newer claim for an address held here: recovery reads the lease.
func (h *Holders) Fenced(key bpf.Key) {
	if e, _, ok := h.Holder(key); ok {
		h.Pending.Add(e.Attachment())
		// The node must reach the new holder by the underlay.
		h.HostLinks.Wake(e.Attachment())
		h.wakeVFs(&e)
	}
}

// wakeVFs has the walls of an entry's VF looked at, if it has one.
func (h *Holders) wakeVFs(e *journal.Entry) {
	if h.VFs != nil && e.Device != "" {
		h.VFs.Wake()
	}
}

// TryLock blocks the plugin's calls for an attachment until unlock. ok is false while
// a call is under way.
func (h *Holders) TryLock(a agentapi.Attachment) (unlock func(), ok bool) {
	return h.attachments.tryLock(a)
}

// Audit writes a line about an address of an entry into the audit log.
func (h *Holders) Audit(kind audit.Kind, e *journal.Entry, address journal.Address, reason string) {
	audit.Log(h.Log, kind, audit.Record{
		Address: address.Addr, Pool: address.Pool,
		Namespace: e.PodNamespace, Pod: e.PodName, PodUID: e.PodUID,
		Node: h.Node, MAC: e.MAC, Token: address.Token, Reason: reason,
	})
}

// GiveWay leaves the machine and the API server to the ADDs under way: it waits
// until there is none, for at most a second.
func (h *Holders) GiveWay() { h.underWay.wait(h.background, h.Clock, giveWayLatest) }
