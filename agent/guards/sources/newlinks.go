// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// poll is how long a read of the socket waits before it looks at its context.
const poll = time.Second

// changesAhead bounds the changes that wait. The next look at all pods finds those that are lost.
const changesAhead = 256

// ImpostorChanges reports the network namespaces in which an interface has changed, by the number that the
// calling namespace gives them (Links.ID), until ctx ends or the socket fails. One socket serves all
// of them. A socket in each of them would keep the namespace of a dead sandbox alive.
func ImpostorChanges(ctx context.Context, log logr.Logger) (<-chan int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	wait := unix.NsecToTimeval(poll.Nanoseconds())
	for _, err := range []error{
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.RTNLGRP_LINK - 1)}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
	} {
		if err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("listen to the changes of interfaces in all network namespaces: %w", err)
		}
	}
	changed := make(chan int, changesAhead)
	go func() {
		defer close(changed)
		defer unix.Close(fd)
		data, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
		err := report(ctx, changed, func() ([]byte, error) {
			// The content of the messages is not read, because it may be outdated.
			_, n, _, _, err := unix.Recvmsg(fd, data, control, 0)
			return control[:n], err
		})
		if err != nil {
			log.Error(err, "interfaces that get frames of other pods are found late from now on")
		}
	}()
	return changed, nil
}

// report sends the namespaces of the messages that receive returns, until ctx ends. An error that
// would come again at once ends it.
func report(ctx context.Context, changed chan<- int, receive func() (control []byte, err error)) error {
	for ctx.Err() == nil {
		control, err := receive()
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS):
			continue // a timeout, or messages that were lost
		case err != nil:
			return fmt.Errorf("read the changes of interfaces: %w", err)
		}
		if id, ok := namespaceOf(control); ok {
			select {
			case changed <- id:
			default:
			}
		}
	}
	return nil
}

// namespaceOf reads the number of the namespace of a message. The calling namespace has none.
func namespaceOf(control []byte) (id int, ok bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_NETLINK && m.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(m.Data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(m.Data))), true
		}
	}
	return 0, false
}
