// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
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

// carrierPatience is how long a physical interface may take to get its carrier after it was raised.
const carrierPatience = 5 * time.Second

// carrierPoll is the time between two looks at the carrier.
const carrierPoll = 2 * time.Millisecond

// inside runs fn in the network namespace at a path.
func inside(path string, fn func() error) error {
	err := ns.WithNetNSPath(path, func(ns.NetNS) error { return fn() })
	if _, gone := errors.AsType[ns.NSPathNotExistErr](err); gone || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no network namespace %s", ErrNoInterface, path)
	}
	return err
}

// find returns the interface of that name in the network namespace of the thread.
func find(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, ErrNoInterface
	}
	if err != nil {
		return nil, fmt.Errorf("read the interface: %w", err)
	}
	a := link.Attrs()
	if a.RawFlags&(unix.IFF_LOOPBACK|unix.IFF_NOARP|unix.IFF_POINTOPOINT) != 0 || len(a.HardwareAddr) != 6 {
		return nil, ErrNoSegment
	}
	return link, nil
}

// raise sets the link up until lower is called, and waits for its carrier. A plugin raises its
// interface after IPAM. If it were up by then, the kernel would not announce the new addresses
// (arp_notify, net/ipv4/devinet.c inetdev_event).
func raise(ctx context.Context, link netlink.Link) (lower func() error, err error) {
	lower = func() error { return nil }
	if link.Attrs().RawFlags&unix.IFF_UP == 0 {
		if err := netlink.LinkSetUp(link); err != nil {
			return nil, fmt.Errorf("set it up: %w", err)
		}
		lower = func() error { return netlink.LinkSetDown(link) }
	}
	ctx, cancel := context.WithTimeoutCause(ctx, carrierPatience, ErrNoCarrier)
	defer cancel()
	tick := time.NewTicker(carrierPoll)
	defer tick.Stop()
	for {
		has, err := hasCarrier(link.Attrs().Name)
		if err == nil && has {
			return lower, nil
		}
		if err != nil {
			return nil, errors.Join(err, lower())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), lower())
		}
	}
}

// hasCarrier asks by ioctl: a netlink request takes several times as long.
func hasCarrier(name string) (bool, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return false, fmt.Errorf("name %q: %w", name, err)
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, request); err != nil {
		return false, os.NewSyscallError("ioctl SIOCGIFFLAGS", err)
	}
	return request.Uint16()&unix.IFF_RUNNING != 0, nil
}

// parentThatHears returns the interface on which answers arrive besides the link itself, or nil. The
// answers to a probe of an ipvlan arrive at its parent: they go to the MAC of the parent, and no
// ipvlan has the address (drivers/net/ipvlan/ipvlan_core.c ipvlan_handle_mode_l2).
func parentThatHears(link netlink.Link) *net.Interface {
	if link.Type() != "ipvlan" || link.Attrs().ParentIndex == 0 {
		return nil
	}
	return &net.Interface{Index: link.Attrs().ParentIndex}
}
