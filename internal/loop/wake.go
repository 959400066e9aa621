// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Wake wakes one loop. It holds an element if something has happened since the loop's last rest.
type Wake chan struct{}

// NewWake returns a Wake.
func NewWake() Wake { return make(Wake, 1) }

// Up ends the rest of the loop, or its next rest. It does not block.
func (w Wake) Up() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// For rests for d, until wake, or until ctx ends. A nil wake never ends the rest. It reports
// whether wake did.
func For(ctx context.Context, c clock.Clock, d time.Duration, wake <-chan struct{}) (woken bool) {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
		return true
	case <-timer.C():
		return false
	}
}

// Again rests as For does, and reports whether the loop goes on: ctx has not ended.
func Again(ctx context.Context, c clock.Clock, d time.Duration, wake <-chan struct{}) bool {
	For(ctx, c, d, wake)
	return ctx.Err() == nil
}
