// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync/atomic"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/idle"
)

// Calls are the calls under way. Safe for concurrent use. The zero value is ready for use.
type Calls struct {
	// attachments serializes the plugin's calls and recovery for one attachment. leases serializes
	// a take-over and a verification of one lease. It is locked after attachments.
	attachments locks[agentapi.Attachment]
	leases      locks[string]
	// adds counts the ADDs that have not ended yet.
	adds atomic.Int32
}

// LockAttachment returns once no other call is under way for an attachment.
func (c *Calls) LockAttachment(a agentapi.Attachment) (unlock func()) { return c.attachments.lock(a) }

// TryLock blocks the plugin's calls for an attachment until unlock. ok is false while
// a call is under way.
func (c *Calls) TryLock(a agentapi.Attachment) (unlock func(), ok bool) {
	return c.attachments.tryLock(a)
}

// LockLease returns once no take-over and no verification of a lease is under way.
func (c *Calls) LockLease(name string) (unlock func()) { return c.leases.lock(name) }

// BeginADD counts an ADD as under way until end is called.
func (c *Calls) BeginADD() (end func()) {
	c.adds.Add(1)
	return func() { c.adds.Add(-1) }
}

// GiveWay leaves the machine and the API server to the ADDs under way: it waits until there is
// none, for at most a second, or until ctx ends.
func (c *Calls) GiveWay(ctx context.Context, now clock.Clock) {
	for end := now.Now().Add(giveWayLatest); c.adds.Load() > 0 && ctx.Err() == nil && now.Now().Before(end); {
		idle.For(ctx, now, PinDelay, nil)
	}
}
