// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

// A socket that fails for good returns at once: reading it again and again would take a core.
func TestASocketIsReadAgainOnlyAfterAFailureThatEnds(t *testing.T) {
	faults := []error{unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.EBADF}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reads, missed := 0, 0
	c := &Changes{Missed: func() { missed++ }}
	err := c.report(ctx, func() (_, _ []byte, err error) {
		if reads++; reads > len(faults) {
			cancel()
			return nil, nil, unix.EBADF
		}
		return nil, nil, faults[reads-1]
	})
	check.Is(t, err, unix.EBADF, "the end of the reports:")
	check.Equal(t, reads, len(faults), "reads:")
	check.Equal(t, missed, 1, "looks at everything:")
}
