package main

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errUnread is the cause with which a call ends whose result nobody waits for.
var errUnread = errors.New("nobody reads the result any more: the calling plugin or the runtime is gone")

// whileRead returns a context that ends when the other end of the pipe out is
// closed. A runtime that gives up kills the plugin that it called, and that one
// takes no IPAM plugin with it; without this the agent would go on working for
// nobody. It costs one thread for the rest of the process.
func whileRead(ctx context.Context, out *os.File) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	fd := int32(out.Fd())
	go func() {
		// No event is asked for, so poll returns for what it reports unasked:
		// POLLERR, which the writing end gets when the reading end closes.
		fds := []unix.PollFd{{Fd: fd}}
		for {
			_, err := unix.Poll(fds, -1)
			switch {
			case errors.Is(err, unix.EINTR):
			case err == nil:
				cancel(errUnread)
				return
			default: // then the agent's deadline has to do
				return
			}
		}
	}()
	return ctx
}
