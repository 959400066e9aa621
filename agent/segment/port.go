package segment

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// errLinkDown is the cause of a wait for a link that ran out of time.
var errLinkDown = errors.New("link did not come up in time")

// port sends frames from a pod's interface. It belongs to one goroutine.
type port interface {
	// waitUp returns when the link is up, or with the cause that ended ctx.
	waitUp(context.Context) error
	send(frame []byte) error
	close() error
}

// podPort is the port of a real interface. Its sockets were made in the pod's
// network namespace and stay there, whatever thread uses them.
type podPort struct {
	index int
	conn  *packet.Conn
	links chan netlink.LinkUpdate
	done  chan struct{}
}

// openPort opens the interface iface in the network namespace at path netNS
// ("" is the calling thread's).
func openPort(netNS, iface string) (port, error) {
	p := &podPort{links: make(chan netlink.LinkUpdate), done: make(chan struct{})}
	err := inNetNS(netNS, func() error { return p.open(iface) })
	if err != nil {
		return nil, fmt.Errorf("open %s in %q: %w", iface, netNS, err)
	}
	return p, nil
}

// open makes the sockets in the calling thread's network namespace.
func (p *podPort) open(iface string) error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open rtnetlink socket: %w", err)
	}
	defer nl.Close()
	l, err := nl.LinkByName(iface)
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

func (p *podPort) waitUp(ctx context.Context) error {
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

func (p *podPort) send(frame []byte) error { return transmit(p.conn, frame) }

func (p *podPort) close() error {
	close(p.done)
	// The subscription closes the channel once it notices, and may be about to
	// write to it.
	go func() {
		for range p.links {
		}
	}()
	return p.conn.Close()
}

// inNetNS calls fn in the network namespace at path, on a thread of its own
// that is thrown away: a thread that could not be brought back to the host's
// namespace would poison whatever goroutine runs on it next.
func inNetNS(path string, fn func() error) error {
	if path == "" {
		return fn()
	}
	errs := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		errs <- func() error {
			ns, err := netns.GetFromPath(path)
			if err != nil {
				return fmt.Errorf("open network namespace: %w", err)
			}
			defer ns.Close()
			if err := netns.Set(ns); err != nil {
				return fmt.Errorf("enter network namespace: %w", err)
			}
			return fn()
		}()
	}()
	return <-errs
}
