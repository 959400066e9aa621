// SPDX-License-Identifier: Apache-2.0

// Package await polls for conditions that nothing reports.
package await

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// broken is why a condition will never hold.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

// Never marks an error of a condition that will never hold.
func Never(err error) error { return broken{err} }

const (
	shortest = 2 * time.Millisecond
	longest  = 200 * time.Millisecond
)

// Until looks again and again until the condition holds, and pauses for a tenth of the time so far. While
// the condition does not hold, it returns what it saw instead. After the limit, when ctx ends, or when it
// will never hold, Until returns the last of these.
func Until(ctx context.Context, limit time.Duration, what string, condition func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	var last error
	for {
		err := condition(within)
		if err == nil || errors.As(err, new(broken)) {
			return err
		}
		pause := min(max(shortest, time.Since(began)/10), longest)
		if last == nil || within.Err() == nil && limit-time.Since(began) > pause {
			last = err // later errors only report that the context has ended
		}
		select {
		case <-within.Done():
			return fmt.Errorf("wait at most %s for %s: %w: %w", limit, what, within.Err(), last)
		case <-time.After(pause):
		}
	}
}
