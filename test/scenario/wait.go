// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"time"

	"github.com/fenceline/fenceline/test/await"
)

// askEvery is the interval of polling, for conditions that no event reports.
const askEvery = 50 * time.Millisecond

// eventually polls until the condition holds. Until then, the condition fails with its observation.
// After limit, eventually fails with the last of these errors.
func eventually(ctx context.Context, limit time.Duration, what string, condition func(context.Context)) {
	check(await.Until(ctx, limit, askEvery, what, func(ctx context.Context) error {
		return attempt(func() { condition(ctx) })
	}))
}
