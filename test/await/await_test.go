// SPDX-License-Identifier: Apache-2.0

package await

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestWhatWasSeenLastIsReported(t *testing.T) {
	seen := errors.New("what was seen")
	looks := 0
	err := Until(t.Context(), 20*time.Millisecond, "a row", func(ctx context.Context) error {
		looks++
		return errors.Join(seen, ctx.Err())
	})
	if !errors.Is(err, seen) || !errors.Is(err, context.DeadlineExceeded) || looks < 2 {
		t.Errorf("%d looks: %v", looks, err)
	}
}

func TestAConditionThatWillNeverHoldEndsTheWait(t *testing.T) {
	ended := errors.New("it has ended")
	looks := 0
	err := Until(t.Context(), time.Minute, "a row", func(context.Context) error {
		if looks++; looks < 3 {
			return errors.New("not yet")
		}
		return Never(ended)
	})
	if !errors.Is(err, ended) || looks != 3 {
		t.Errorf("%d looks: %v", looks, err)
	}
}
