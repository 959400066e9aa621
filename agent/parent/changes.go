// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// listenPoll is how long a read of the socket waits before it looks at its context.
	listenPoll = time.Second
	// listenFirst and listenMost bound the pause before a new socket.
	listenFirst, listenMost = time.Second, time.Minute
	// listenSize has room for a message about an interface with many VFs.
	listenSize = 1 << 16
)

// Changes tells all who need it of the changes of interfaces and addresses. One socket in the calling network
// namespace serves this namespace and those of pods: a socket in each of these would keep the namespace of a dead
// sandbox alive. All functions are required, and must not block.
type Changes struct {
	// Link handles a change of an interface of the node. physical: a driver made it, so a VF may be back from
	// a pod.
	Link func(physical bool)
	// Address handles a change of an address of the node.
	Address func()
	// Pod handles a change of an interface in the network namespace to which the node gives this number.
	Pod func(namespace int)
	// Missed is called when Changes begins to listen, and when the kernel has dropped changes.
	Missed func()
	Log    logr.Logger
	Clock  clock.Clock
}

// Run listens until ctx ends.
func (c *Changes) Run(ctx context.Context) error {
	return loop.Loop{Clock: c.Clock, First: listenFirst, Most: listenMost, Failed: func(err error) {
		c.Log.Error(err, "VFs that come back from pods, devices of exclusive parents, interfaces that get frames of other pods, and addresses of the node are seen late")
	}}.Try(ctx, c.listen)
}

// listen listens until ctx ends or the socket fails.
func (c *Changes) listen(ctx context.Context) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	defer unix.Close(fd)
	if err := c.join(fd); err != nil {
		return fmt.Errorf("listen to the changes of interfaces: %w", err)
	}
	c.Missed()
	data, control := make([]byte, listenSize), make([]byte, unix.CmsgSpace(4))
	return c.report(ctx, func() (message, ancillary []byte, err error) {
		n, m, flags, from, err := unix.Recvmsg(fd, data, control, 0)
		if kernel, ok := from.(*unix.SockaddrNetlink); err == nil && (!ok || kernel.Pid != 0) {
			return nil, nil, unix.EAGAIN // another process has sent it
		}
		if err == nil && flags&unix.MSG_TRUNC != 0 {
			err = unix.ENOBUFS
		}
		return data[:max(n, 0)], control[:max(m, 0)], err
	})
}

// join makes a socket get the changes. Without the right to hear of other namespaces (CAP_NET_BROADCAST), it
// gets those of the node.
func (c *Changes) join(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
		c.Log.Error(err, "interfaces that get frames of other pods are found late")
	}
	wait := unix.NsecToTimeval(listenPoll.Nanoseconds())
	groups := uint32(1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1))
	return errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}),
	)
}

// report passes on the messages that receive returns, until ctx ends. An error that would come again at once
// ends it.
func (c *Changes) report(ctx context.Context, receive func() (message, ancillary []byte, err error)) error {
	for ctx.Err() == nil {
		message, ancillary, err := receive()
		switch {
		case err == nil:
			c.tell(message, ancillary)
		case errors.Is(err, unix.ENOBUFS):
			c.Missed()
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR): // a timeout
			return fmt.Errorf("read the changes of interfaces: %w", err)
		}
	}
	return nil
}

// tell passes on one message. The interface may have changed since, so only its kind is read.
func (c *Changes) tell(message, ancillary []byte) {
	namespace, ofPod := namespaceOf(ancillary)
	all, err := syscall.ParseNetlinkMessage(message)
	if err != nil {
		c.Missed()
	}
	for _, m := range all {
		switch m.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			if ofPod {
				c.Pod(namespace)
				continue
			}
			link, err := netlink.LinkDeserialize(nil, m.Data)
			c.Link(err != nil || link.Type() == "device")
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			if !ofPod {
				c.Address()
			}
		}
	}
}

// namespaceOf reads the number of the namespace of a message. The calling namespace has none.
func namespaceOf(ancillary []byte) (id int, ok bool) {
	messages, err := unix.ParseSocketControlMessage(ancillary)
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
