package bpf

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the present CLOCK_BOOTTIME, the clock of every time this package returns.
func (k *Kernel) Now() time.Duration {
	var ts unix.Timespec
	// CLOCK_BOOTTIME exists since 2.6.39 and the pointer is valid: the call has no way to fail.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}
