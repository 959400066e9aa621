// SPDX-License-Identifier: Apache-2.0

// Package interrupted repeats system calls that a signal has interrupted.
package interrupted

import (
	"errors"
	"syscall"
)

// Repeat makes a call again until its result is not EINTR, and returns the result. os.File does so by
// itself, golang.org/x/sys/unix does not. The handlers of Go make the kernel restart most calls, but not
// all: the drain of a terminal and the wait for a seccomp notification end with EINTR. The runtime sends
// signals to its own threads at any time.
func Repeat(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
