// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/holder/pending"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/audit"
)

// Base is what all parts of the holders build on. Its methods may be called concurrently.
type Base struct {
	Options

	// Pending are the attachments that recovery has to resume.
	Pending *pending.Set
	// Background outlives a call; undo runs in it. Tasks are the steps that ADDs
	// leave for the time after their answer.
	Background context.Context
	Tasks      sync.WaitGroup

	// attachments serializes the plugin's calls and recovery for one attachment.
	// leases serializes a take-over and a verification of one lease; it is taken second.
	attachments locks[agentapi.Attachment]
	leases      locks[string]
	underWay    underWay
}

// New returns a Base. The undo of an ADD and the steps after an answer end with ctx.
func New(ctx context.Context, o Options) *Base {
	return &Base{Options: o, Pending: pending.New(), Background: ctx}
}

// LockAttachment returns once no other call is under way for an attachment.
func (b *Base) LockAttachment(a agentapi.Attachment) (unlock func()) { return b.attachments.lock(a) }

// LockLease returns once no take-over and no verification of a lease is under way.
func (b *Base) LockLease(name string) (unlock func()) { return b.leases.lock(name) }

// BeginADD counts an ADD as under way until end is called.
func (b *Base) BeginADD() (end func()) { return b.underWay.begin() }

// Bound yields the entries whose interfaces hold addresses now. They are read-only.
func (b *Base) Bound() iter.Seq[*journal.Entry] {
	return func(yield func(*journal.Entry) bool) {
		for _, e := range b.Journal.All() {
			if e.Phase == journal.Bound && e.Session == b.Session && !yield(e) {
				return
			}
		}
	}
}

// Holder returns the entry that holds an address on this node, if there is one.
func (b *Base) Holder(key bpf.Key) (journal.Entry, journal.Address, bool) {
	for e := range b.Bound() {
		for _, address := range e.Addresses {
			if guards.Key(e, address) == key {
				return *e, address, true
			}
		}
	}
	return journal.Entry{}, journal.Address{}, false
}

// WakeVFs has the walls of an entry's VF looked at, if it has one.
func (b *Base) WakeVFs(e *journal.Entry) {
	if b.VFs != nil && e.Device != "" {
		b.VFs.Wake()
	}
}

// TryLock blocks the plugin's calls for an attachment until unlock. ok is false while
// a call is under way.
func (b *Base) TryLock(a agentapi.Attachment) (unlock func(), ok bool) {
	return b.attachments.tryLock(a)
}

// Audit writes a line about an address of an entry into the audit log.
func (b *Base) Audit(kind audit.Kind, e *journal.Entry, address journal.Address, reason string) {
	audit.Log(b.Log, kind, audit.Record{
		Address: address.Addr, Pool: address.Pool,
		Namespace: e.PodNamespace, Pod: e.PodName, PodUID: e.PodUID,
		Node: b.Node, MAC: e.MAC, Token: address.Token, Reason: reason,
	})
}

// GiveWay leaves the machine and the API server to the ADDs under way: it waits
// until there is none, for at most a second.
func (b *Base) GiveWay() { b.underWay.wait(b.Background, b.Clock, giveWayLatest) }

// GuardSources tells the kernel what the interface of an entry may send.
func (b *Base) GuardSources(e *journal.Entry) error {
	if b.SourceGuards == nil {
		return nil
	}
	b.SourceGuards.Wake()
	if err := b.SourceGuards.Apply(b.Background, e); err != nil {
		return fmt.Errorf("guard the sources of %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err)
	}
	return nil
}

// AwaitServices waits until the service CIDRs are known, or are known to be unknown, so that the checks
// of the first ADDs do not pass for want of them. The agent asks at its start.
func (b *Base) AwaitServices(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	select {
	case <-b.ServicesAnswered:
	case <-ctx.Done():
	}
}
