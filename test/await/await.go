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

// Until looks every interval until the condition holds. While it does not, the condition returns what it
// saw instead. After the limit, when ctx ends, or when it will never hold, Until returns the last of these.
func Until(ctx context.Context, limit, every time.Duration, what string, condition func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	end := time.Now().Add(limit)
	var last error
	for {
		err := condition(within)
		if err == nil || errors.As(err, new(broken)) {
			return err
		}
		if last == nil || within.Err() == nil && time.Until(end) > every {
			last = err // later errors only report that the context has ended
		}
		select {
		case <-within.Done():
			return fmt.Errorf("wait at most %s for %s: %w: %w", limit, what, within.Err(), last)
		case <-tick.C:
		}
	}
}
