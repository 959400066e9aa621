// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the current CLOCK_BOOTTIME, the clock of every time in this package.
func (t *tables) Now() time.Duration {
	var ts unix.Timespec
	// CLOCK_BOOTTIME exists since 2.6.39 and the pointer is valid: the call cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}
