// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/internal/idle"
)

// giveWayLatest bounds the time for which other work waits for the ADDs under way. An ADD that waits
// for a full pool is not under way.
const giveWayLatest = time.Second

// WaitFor waits d. It returns false at once if the call's deadline is too close.
func WaitFor(ctx context.Context, c clock.Clock, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(c.Now()) < d+AnswerMargin {
		return false
	}
	return idle.Again(ctx, c, d, nil)
}

// AskTimeout bounds how long a DEL, or a try of the worker, waits for the API server.
// A connection that died silently would block for much longer.
const AskTimeout = 5 * time.Second

// PinDelay is the time from the answer to the pin of the guard. In this time the plugin sets the
// interface up, and needs the kernel's RTNL lock for that. A pin holds that lock for tens of
// milliseconds.
const PinDelay = 30 * time.Millisecond

// AnswerMargin is the part of an ADD's deadline that is reserved for the answer.
const AnswerMargin = 3 * time.Second

// UndoTimeout bounds the undo of an ADD whose own deadline has passed. The worker
// does the rest.
const UndoTimeout = 5 * time.Second
