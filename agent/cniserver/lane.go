package cniserver

import (
	"context"
	"errors"
	"sync"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// errSuperseded is the cause with which a DEL ends the calls that are in its way.
var errSuperseded = errors.New("a DEL of the same interface arrived")

// manners say what a call does when a DEL enters its lane.
type manners bool

const (
	// yields: its context ends.
	yields manners = true
	// insists: it goes on. Only a DEL does, and it makes those that yield do so.
	insists manners = false
)

// lanes lets one call at a time through for each attachment.
type lanes struct {
	mu       sync.Mutex
	occupied map[agentapi.Attachment]*lane
}

// lane exists while a call runs or waits in it.
type lane struct {
	// turn is full while a call runs.
	turn chan struct{}
	// calls are those that run or wait, each with the way to end it.
	calls map[*lap]struct{}
}

// lap is the stay of one call in its lane.
type lap struct {
	manners manners
	end     context.CancelCauseFunc
}

func newLanes() *lanes { return &lanes{occupied: map[agentapi.Attachment]*lane{}} }

// enter waits until no other call runs for the attachment. It returns the
// context for the call and a function that leaves the lane, to be called once.
// When ctx ends first, or a DEL overtakes, the error is the cause.
func (l *lanes) enter(ctx context.Context, a agentapi.Attachment, m manners) (context.Context, func(), error) {
	ctx, end := context.WithCancelCause(ctx)
	own := &lap{manners: m, end: end}
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
	if own.manners == insists {
		for other := range in.calls {
			if other.manners == yields {
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
