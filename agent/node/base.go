// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"sync"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/proof"
	"github.com/fenceline/fenceline/internal/audit"
)

// Base has the common parts of the holders. Its methods may be called concurrently.
type Base struct {
	Options
	// Proof builds the claims and verifications of this node.
	Proof proof.Node

	// Background outlives a call; undo runs in it. Tasks are the steps that follow an answer.
	Background context.Context
	Tasks      sync.WaitGroup
}

// New returns a Base. The undo of an ADD and the steps after an answer end with ctx.
func New(ctx context.Context, o Options) *Base {
	of := proof.Node{Name: o.Node, Session: o.Session, Cluster: o.Cluster, OthersShare: o.OthersShare}
	return &Base{Options: o, Proof: of, Background: ctx}
}

// WakeVFs makes VFs check the VF of an entry soon, if it has one.
func (b *Base) WakeVFs(e *attachment.Entry) {
	if b.VFs != nil && e.Device != "" {
		b.VFs.Wake()
	}
}

// Audit writes a line about an address of an entry into the audit log.
func (b *Base) Audit(kind audit.Kind, e *attachment.Entry, address attachment.Address, reason string) {
	audit.Log(b.Log, kind, audit.Record{
		Address: address.Addr, Network: address.Network, Pool: address.Pool,
		Namespace: e.PodNamespace, Pod: e.PodName, PodUID: e.PodUID,
		Node: b.Node, MAC: e.MAC, Token: address.Token, Reason: reason,
	})
}

// Laps returns a function that counts the time of a step of an ADD at its end. The step began at
// the end of the last one.
func (b *Base) Laps() func(step string) {
	last := b.Clock.Now()
	return func(step string) {
		now := b.Clock.Now()
		b.Metrics.Step(step, now.Sub(last))
		last = now
	}
}

// GuardSources tells the kernel what the interface of an entry may send.
func (b *Base) GuardSources(e *attachment.Entry) error {
	if b.SourceGuards == nil {
		return nil
	}
	if err := b.SourceGuards.Apply(b.Background, e); err != nil {
		return fmt.Errorf("guard the sources of %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err)
	}
	return nil
}

// WatchSources makes the agent apply the pools to all bound interfaces again, also to a new one, and
// read its link-local addresses once the kernel has made them.
func (b *Base) WatchSources() {
	if b.SourceGuards != nil {
		b.SourceGuards.Wake()
	}
}

// AwaitServices waits until the agent's first search for the service CIDRs has ended. Without them,
// the checks of the first ADDs would pass wrongly. The agent searches at its start.
func (b *Base) AwaitServices(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, attachment.AskTimeout)
	defer cancel()
	select {
	case <-b.ServicesAnswered:
	case <-ctx.Done():
	}
}
