// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errUnread is the cause with which a call ends when its result has no reader.
var errUnread = errors.New("the calling plugin or the runtime has ended and no longer reads the result")

// whileRead returns a context that ends when the reading end of the pipe out is closed. After a
// timeout a runtime kills the plugin that it called, but not the IPAM plugin below. Without this
// context the agent would go on with a call that has no caller. It costs one thread for the rest of
// the process.
func whileRead(ctx context.Context, out *os.File) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	fd := int32(out.Fd())
	go func() {
		// Without requested events poll reports only POLLERR and POLLHUP. The writing end of a pipe
		// gets POLLERR when the reading end is closed (poll(2)).
		fds := []unix.PollFd{{Fd: fd}}
		for {
			_, err := unix.Poll(fds, -1)
			switch {
			case errors.Is(err, unix.EINTR):
			case err == nil:
				cancel(errUnread)
				return
			default: // the agent's deadline ends the call
				return
			}
		}
	}()
	return ctx
}
