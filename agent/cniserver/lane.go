// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"sync"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// cancellable is the behaviour of a call when a DEL enters its lane.
type cancellable bool

const (
	// yields: its context ends.
	yields cancellable = true
	// insists: it goes on. Only a DEL insists. It cancels the calls that yield.
	insists cancellable = false
)

// lanes runs one call at a time for each attachment.
type lanes struct {
	mu       sync.Mutex
	occupied map[agentapi.Attachment]*lane
}

// lane exists while a call runs or waits in it.
type lane struct {
	// turn holds an element while a call runs.
	turn chan struct{}
	// calls are the calls that run or wait.
	calls map[*lap]struct{}
}

// lap is one call in its lane. end cancels its context.
type lap struct {
	cancellable cancellable
	end         context.CancelCauseFunc
}

func newLanes() *lanes { return &lanes{occupied: map[agentapi.Attachment]*lane{}} }

// enter waits until no other call runs for the attachment. It returns the context of the call, and
// a function that leaves the lane; the caller calls it once. If ctx ends or a DEL arrives during
// the wait, it returns the cause as error.
func (l *lanes) enter(ctx context.Context, a agentapi.Attachment, m cancellable) (context.Context, func(), error) {
	ctx, end := context.WithCancelCause(ctx)
	own := &lap{cancellable: m, end: end}
	in := l.join(a, own)
	select {
	case in.turn <- struct{}{}:
		return ctx, func() {
			<-in.turn
			l.quit(a, own)
		}, nil
	case <-ctx.Done():
		l.quit(a, own)
		return nil, nil, context.Cause(ctx)
	}
}

func (l *lanes) join(a agentapi.Attachment, own *lap) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.occupied[a]
	if in == nil {
		in = &lane{turn: make(chan struct{}, 1), calls: map[*lap]struct{}{}}
		l.occupied[a] = in
	}
	if own.cancellable == insists {
		for other := range in.calls {
			if other.cancellable == yields {
				other.end(errSuperseded)
			}
		}
	}
	in.calls[own] = struct{}{}
	return in
}

func (l *lanes) quit(a agentapi.Attachment, own *lap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.occupied[a]
	delete(in.calls, own)
	if len(in.calls) == 0 {
		delete(l.occupied, a)
	}
	own.end(nil)
}
