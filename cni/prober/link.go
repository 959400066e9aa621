// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var (
	// ErrNoInterface: the interface does not exist. The plugin ptp makes it after IPAM.
	ErrNoInterface = errors.New("the interface does not exist yet")
	// ErrNoSegment: the interface has no L2 segment on which a host could answer.
	ErrNoSegment = errors.New("the interface has no L2 segment")
	// ErrNoCarrier: no host could answer, so silence proves nothing.
	ErrNoCarrier = errors.New("the interface has no carrier")
)

const (
	// carrierPatience is how long a physical interface may take to get its carrier after it was raised.
	carrierPatience = 5 * time.Second
	// carrierPoll is the time between two looks at the carrier.
	carrierPoll = 2 * time.Millisecond
	// forwardPatience is how long what is beneath the link may take until it passes frames on: twice the
	// greatest forward delay (IEEE 802.1D-1998 table 8-3), and some slack. LACP takes 30 s at most.
	forwardPatience = 65 * time.Second
	forwardPoll     = 10 * time.Millisecond
)

// inside runs fn in the network namespace at a path. caller is that of the plugin.
func inside(path string, fn func(caller ns.NetNS) error) error {
	err := ns.WithNetNSPath(path, fn)
	if _, gone := errors.AsType[ns.NSPathNotExistErr](err); gone || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no network namespace %s", ErrNoInterface, path)
	}
	return err
}

// link is an interface, with sockets that reach it from every thread.
type link struct {
	netlink.Link
	name string
	mac  net.HardwareAddr
	// routes configures the interface, and flags reads its flags.
	routes *netlink.Handle
	flags  int
	raised bool
	// edge: the other end of the link is out of sight.
	edge bool
	// answered are the addresses for which the kernel answers.
	answered []netip.Addr
}

// find returns the interface of a name, by a function of netlink.
func find(byName func(string) (netlink.Link, error), name string) (netlink.Link, error) {
	l, err := byName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, ErrNoInterface
	}
	if err != nil {
		return nil, fmt.Errorf("read the interface: %w", err)
	}
	return l, nil
}

// openLink opens the interface of that name in the network namespace of the thread.
func openLink(name string) (_ *link, err error) {
	routes, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	l := &link{name: name, routes: routes, flags: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.Link, err = find(routes.LinkByName, name); err != nil {
		return nil, err
	}
	a := l.Attrs()
	l.mac = a.HardwareAddr
	// The kernel sets IFF_NOARP on an ipvlan of mode l3 or l3s when it is raised.
	ipvlan, _ := l.Link.(*netlink.IPVlan)
	if a.RawFlags&(unix.IFF_LOOPBACK|unix.IFF_NOARP|unix.IFF_POINTOPOINT) != 0 || len(l.mac) != 6 || ipvlan != nil && ipvlan.Mode != netlink.IPVLAN_MODE_L2 {
		return nil, ErrNoSegment
	}
	if l.flags, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return l, nil
}

func (l *link) raise() error {
	if l.Attrs().RawFlags&unix.IFF_UP != 0 {
		return nil
	}
	if err := l.routes.LinkSetUp(l.Link); err != nil {
		return fmt.Errorf("set it up: %w", err)
	}
	l.raised = true
	return nil
}

// awaitCarrier waits for the carrier of the link. The segment of a tap is the process that has it open.
// There is none before the container starts.
func (l *link) awaitCarrier(ctx context.Context) error {
	if _, tap := l.Link.(*netlink.Tuntap); tap {
		now, err := find(l.routes.LinkByName, l.name)
		if err == nil && now.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 {
			err = fmt.Errorf("%w: no process has the tap open", ErrNoSegment)
		}
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, carrierPatience, ErrNoCarrier)
	defer cancel()
	return poll(ctx, carrierPoll, l.hasCarrier)
}

// awaitForwarding waits until all that is beneath the link passes frames on. It does not wait for ports
// that come up meanwhile: those of other containers.
func (l *link) awaitForwarding(ctx context.Context, caller ns.NetNS) error {
	b, ok, err := belowOf(l.Link, caller)
	if l.edge = !ok; err != nil || !ok {
		return err
	}
	var waits deafness
	ctx, cancel := context.WithTimeout(ctx, forwardPatience)
	defer cancel()
	err = poll(ctx, forwardPoll, func() (bool, error) {
		var now deafness
		if err := b.do(func() (err error) { now, err = deafnessOf(b.index); return err }); err != nil {
			return false, err
		}
		if waits == nil {
			waits = now
		}
		maps.DeleteFunc(waits, func(index int, _ string) bool { return now[index] == "" })
		return len(waits) == 0, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && len(waits) > 0 {
		return fmt.Errorf("no frame passes after %s: %s", forwardPatience, strings.Join(slices.Sorted(maps.Values(waits)), ", "))
	}
	return err
}

// poll waits until a look finds the state for which it waits, or returns the cause that ended ctx.
func poll(ctx context.Context, every time.Duration, look func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if found, err := look(); err != nil || found {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasCarrier asks by ioctl: a netlink request takes several times as long.
func (l *link) hasCarrier() (bool, error) {
	request, err := unix.NewIfreq(l.name)
	if err != nil {
		return false, fmt.Errorf("name %q: %w", l.name, err)
	}
	if err := unix.IoctlIfreq(l.flags, unix.SIOCGIFFLAGS, request); err != nil {
		return false, os.NewSyscallError("ioctl SIOCGIFFLAGS", err)
	}
	return request.Uint16()&unix.IFF_RUNNING != 0, nil
}

// answerFor makes the kernel answer for an address of IPv4 that is not configured yet, by the route
// that the kernel adds for a configured one (net/ipv4/fib_frontend.c fib_add_ifaddr). So the route
// becomes that of the address, and goes with it. Addresses of IPv6 are safe without: the duplicate
// address detection of the kernel finds a host that probes.
func (l *link) answerFor(addr netip.Addr) error {
	if !addr.Is4() || slices.Contains(l.answered, addr) {
		return nil
	}
	// The interface may have the address from an earlier ADD.
	if err := l.routes.RouteAdd(l.localRoute(addr)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("answer for %s on %s: %w", addr, l.name, err)
	}
	l.answered = append(l.answered, addr)
	return nil
}

// endAnswerFor ends the answers for an address, if there are any.
func (l *link) endAnswerFor(addr netip.Addr) error {
	i := slices.Index(l.answered, addr)
	if i < 0 {
		return nil
	}
	if err := l.routes.RouteDel(l.localRoute(addr)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end the answers for %s on %s: %w", addr, l.name, err)
	}
	l.answered = slices.Delete(l.answered, i, i+1)
	return nil
}

func (l *link) localRoute(addr netip.Addr) *netlink.Route {
	return &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: netlink.NewIPNet(addr.AsSlice()), Src: addr.AsSlice(), Table: unix.RT_TABLE_LOCAL,
		Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: unix.RTPROT_KERNEL,
	}
}

// restore ends the answers, and sets the link down if raise has set it up.
func (l *link) restore() error {
	var errs []error
	for _, addr := range slices.Clone(l.answered) {
		errs = append(errs, l.endAnswerFor(addr))
	}
	if l.raised {
		errs = append(errs, l.routes.LinkSetDown(l.Link))
	}
	return errors.Join(errs...)
}

func (l *link) close() error {
	l.routes.Close()
	if l.flags < 0 {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(l.flags))
}
