// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// AskTimeout bounds how long a DEL, or a try of the worker, waits for the API server. A connection
	// that died silently would block for much longer.
	AskTimeout = 5 * time.Second
	// PinDelay is the time from the answer to the pin of the guard. The plugin sets the interface up
	// then, and needs the kernel's RTNL lock, which a pin holds for tens of milliseconds.
	PinDelay = 30 * time.Millisecond
	// AnswerMargin is the part of an ADD's deadline that is reserved for the answer.
	AnswerMargin = 3 * time.Second
	// UndoTimeout bounds the undo of an ADD whose own deadline has passed. The worker does the rest.
	UndoTimeout = 5 * time.Second
	// giveWayLatest bounds the time for which other work waits for the ADDs under way. An ADD that
	// waits for a full pool is not under way.
	giveWayLatest = time.Second
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

// TryLock is LockAttachment without a wait: ok is false while a call is under way.
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
		loop.For(ctx, now, PinDelay, nil)
	}
}

// WaitFor waits d. It returns false at once if the call's deadline is too close.
func WaitFor(ctx context.Context, c clock.Clock, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(c.Now()) < d+AnswerMargin {
		return false
	}
	return loop.Again(ctx, c, d, nil)
}

// locks has a lock for each key that is locked or waited for. The zero value is ready for use.
type locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]*heldLock
}

type heldLock struct {
	sync.Mutex
	users int
}

// lock returns the function that unlocks.
func (l *locks[K]) lock(k K) (unlock func()) {
	one := l.join(k)
	one.Lock()
	return func() { l.unlock(k, one) }
}

// tryLock does not wait: ok is false while the key is locked.
func (l *locks[K]) tryLock(k K) (unlock func(), ok bool) {
	one := l.join(k)
	if !one.TryLock() {
		l.quit(k, one)
		return nil, false
	}
	return func() { l.unlock(k, one) }, true
}

func (l *locks[K]) join(k K) *heldLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[K]*heldLock{}
	}
	one := l.held[k]
	if one == nil {
		one = &heldLock{}
		l.held[k] = one
	}
	one.users++
	return one
}

func (l *locks[K]) unlock(k K, one *heldLock) {
	one.Unlock()
	l.quit(k, one)
}

func (l *locks[K]) quit(k K, one *heldLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(l.held, k)
	}
}
