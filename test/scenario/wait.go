package scenario

import (
	"context"
	"fmt"
	"time"
)

// askEvery is how often a condition is asked about that cannot be waited for
// in a better way.
const askEvery = 50 * time.Millisecond

// eventually asks until the condition holds. While it does not, the condition
// returns what it saw instead; the last such answer is in the error.
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
			last = err // later ones only say that time is over
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", limit, what, last)
		case <-tick.C:
		}
	}
}
