// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"time"
)

// askEvery is the interval of polling, for conditions that no event reports.
const askEvery = 50 * time.Millisecond

// eventually polls until the condition holds. While it does not hold, the condition returns what it
// saw instead as an error. After limit, eventually returns the last of these errors.
func eventually(ctx context.Context, limit time.Duration, what string, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	end := time.Now().Add(limit)
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil && time.Until(end) > askEvery {
			last = err // later errors only report that the context has ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", limit, what, last)
		case <-tick.C:
		}
	}
}
