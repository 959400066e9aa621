// SPDX-License-Identifier: Apache-2.0

package wholelist_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/internal/wholelist"
	"github.com/fenceline/fenceline/test/check"
)

func TestAnInterruptedListIsReadAgain(t *testing.T) {
	for _, c := range []struct {
		interruptions int
		then          error
		want          error
		calls         int
	}{
		{0, nil, nil, 1},
		{3, nil, nil, 4},
		{1, errors.ErrUnsupported, errors.ErrUnsupported, 2},
		{99, nil, netlink.ErrDumpInterrupted, 10},
	} {
		calls := 0
		_, err := wholelist.Of(func() (int, error) {
			if calls++; calls <= c.interruptions {
				return 0, fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
			}
			return 0, c.then
		})
		check.That(t, errors.Is(err, c.want) && calls == c.calls, "%d interruptions, then %v: %v after %d calls", c.interruptions, c.then, err, calls)
	}
}
