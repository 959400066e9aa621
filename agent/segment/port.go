// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/internal/wholelist"
)

// Port sends frames from a pod's interface. Its sockets stay in the pod's network namespace,
// independently of the thread that uses them. It belongs to one goroutine.
type Port struct {
	index int
	conn  *packet.Conn
	links chan netlink.LinkUpdate
	done  chan struct{}
}

// OpenPort opens an interface in the network namespace at path netNS; "" is the calling thread's. A veth is found by
// its other end, unless nodeEnd is 0: the launcher of a virtual machine gives the name to another interface.
func OpenPort(netNS, iface string, nodeEnd int) (*Port, error) {
	p := &Port{links: make(chan netlink.LinkUpdate), done: make(chan struct{})}
	err := attach.InNetNS(netNS, func() error { return p.open(iface, nodeEnd) })
	if err != nil {
		return nil, fmt.Errorf("open %s in %q: %w", iface, netNS, err)
	}
	return p, nil
}

// open opens the sockets in the calling thread's network namespace.
func (p *Port) open(iface string, nodeEnd int) error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open rtnetlink socket: %w", err)
	}
	defer nl.Close()
	l, err := nl.LinkByName(iface)
	if nodeEnd != 0 && (err != nil || !endsAt(l, nodeEnd)) {
		l, err = byNodeEnd(nl, nodeEnd)
	}
	if err != nil {
		return fmt.Errorf("find interface: %w", err)
	}
	p.index = l.Attrs().Index
	if p.conn, err = openPacket(p.index); err != nil {
		return err
	}
	err = netlink.LinkSubscribeWithOptions(p.links, p.done, netlink.LinkSubscribeOptions{ListExisting: true})
	if err != nil {
		return errors.Join(fmt.Errorf("subscribe to links: %w", err), p.conn.Close())
	}
	return nil
}

// endsAt reports whether a link is a veth whose other end is this one of another network namespace.
func endsAt(l netlink.Link, nodeEnd int) bool {
	return l.Type() == "veth" && l.Attrs().ParentIndex == nodeEnd && l.Attrs().NetNsID >= 0
}

func byNodeEnd(nl *netlink.Handle, nodeEnd int) (netlink.Link, error) {
	links, err := wholelist.Of(nl.LinkList)
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return endsAt(l, nodeEnd) })
	if err == nil && at < 0 {
		err = fmt.Errorf("no veth has the other end %d", nodeEnd)
	}
	if err != nil {
		return nil, err
	}
	return links[at], nil
}

// WaitUp returns nil when the link is up, or the cause that ended ctx.
func (p *Port) WaitUp(ctx context.Context) error {
	for {
		select {
		case u, ok := <-p.links:
			if !ok {
				return errors.New("subscription to links ended")
			}
			if int(u.Index) != p.index {
				continue
			}
			if u.Header.Type == unix.RTM_DELLINK {
				return errors.New("interface was deleted")
			}
			if up := uint32(unix.IFF_UP | unix.IFF_RUNNING); u.IfInfomsg.Flags&up == up {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Send sends a frame.
func (p *Port) Send(frame []byte) error { return transmit(p.conn, frame) }

// Close closes the sockets.
func (p *Port) Close() error {
	close(p.done)
	// The subscription may still write to the channel before it notices and closes it.
	go func() {
		for range p.links {
		}
	}()
	return p.conn.Close()
}
