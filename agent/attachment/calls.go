// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// AskTimeout bounds how long a try of the worker waits for the API server. A connection
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

// Calls are the calls under way. Safe for concurrent use.
type Calls struct {
	mu sync.Mutex
	// locks has a lock for each attachment, name of a lease, and file that is locked or waited for.
	locks map[any]*keyLock
	// adds has the ADDs under way. The value is true for one that a verifier has overtaken.
	adds map[agentapi.Attachment]bool
}

// Lock returns once no other call is under way for an attachment: it serializes the calls of the
// plugin and the recovery.
func (c *Calls) Lock(a agentapi.Attachment) (unlock func()) { return c.wait(a) }

// LockLease returns once no take-over and no verification of a lease is under way. It is locked after
// the attachment.
func (c *Calls) LockLease(name string) (unlock func()) { return c.wait(name) }

// TryLock is Lock without a wait: ok is false while a call is under way.
func (c *Calls) TryLock(a agentapi.Attachment) (unlock func(), ok bool) {
	l := c.join(a)
	if !l.TryLock() {
		c.quit(a, l)
		return nil, false
	}
	return func() { c.unlock(a, l) }, true
}

// file is the path of an entry: one call at a time writes it. It is locked last.
type file string

// keyLock is one lock, with the number of those that have it or wait for it.
type keyLock struct {
	sync.Mutex
	users int
}

func (c *Calls) wait(key any) (unlock func()) {
	l := c.join(key)
	l.Lock()
	return func() { c.unlock(key, l) }
}

func (c *Calls) join(key any) *keyLock {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.locks[key]
	if l == nil {
		l = &keyLock{}
		c.locks[key] = l
	}
	l.users++
	return l
}

func (c *Calls) unlock(key any, l *keyLock) {
	l.Unlock()
	c.quit(key, l)
}

func (c *Calls) quit(key any, l *keyLock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(c.locks, key)
	}
}

// BeginADD counts an ADD as under way until EndADD. Called again, it drops what Overtake has noted.
func (c *Calls) BeginADD(a agentapi.Attachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adds[a] = false
}

// EndADD ends an ADD that BeginADD has counted.
func (c *Calls) EndADD(a agentapi.Attachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.adds, a)
}

// Overtake notes that a verifier of this node took a lease of an attachment, because Kubernetes no
// longer wants the pod. If an ADD is under way for it, the ADD must not answer: its guard may be
// attached after the verifier has killed the slots.
func (c *Calls) Overtake(a agentapi.Attachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, underWay := c.adds[a]; underWay {
		c.adds[a] = true
	}
}

// IsOvertaken reports whether a verifier has overtaken the ADD of an attachment.
func (c *Calls) IsOvertaken(a agentapi.Attachment) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.adds[a]
}

// GiveWay leaves the machine and the API server to the ADDs under way: it waits until there is
// none, for at most a second, or until ctx ends.
func (c *Calls) GiveWay(ctx context.Context, now clock.Clock) {
	for end := now.Now().Add(giveWayLatest); c.isAdding() && ctx.Err() == nil && now.Now().Before(end); {
		loop.For(ctx, now, PinDelay, nil)
	}
}

func (c *Calls) isAdding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.adds) > 0
}

// WaitFor waits d. It returns false at once if the call's deadline is too close.
func WaitFor(ctx context.Context, c clock.Clock, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(c.Now()) < d+AnswerMargin {
		return false
	}
	return loop.Again(ctx, c, d, nil)
}
