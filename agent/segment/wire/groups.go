// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"
)

// groups are the solicited-node groups that a parent has joined. Safe for concurrent use.
type groups struct {
	parent int
	// socket holds the memberships. It is nil if the kernel has no IPv6.
	socket *os.File

	mu sync.Mutex
	// users counts the addresses of each group. Addresses that end with the same 24 bits share one.
	users map[netip.Addr]int
}

func openGroups(parent int) (*groups, error) {
	g := &groups{parent: parent, users: make(map[netip.Addr]int)}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return g, nil
	}
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	g.socket = os.NewFile(uintptr(fd), "groups of a parent")
	return g, nil
}

func (g *groups) close() error {
	if g == nil || g.socket == nil {
		return nil
	}
	return g.socket.Close()
}

// Join makes the neighbour solicitations for an IPv6 address reach the parent until leave is called, as a
// host does that probes the address (RFC 4862 section 5.4.2): a switch with MLD snooping passes them to the
// members of their group only. For an IPv4 address, it does nothing.
func (p *Parent) Join(addr netip.Addr) (leave func() error, err error) {
	if !addr.Is6() || p.groups.socket == nil {
		return func() error { return nil }, nil
	}
	group, err := ndp.SolicitedNodeMulticast(addr)
	if err != nil {
		return nil, fmt.Errorf("solicited-node group of %s: %w", addr, err)
	}
	if err := p.groups.add(group, 1); err != nil {
		return nil, fmt.Errorf("join %s: %w", group, err)
	}
	return func() error { return p.groups.add(group, -1) }, nil
}

// add adds users to a group, or removes them. The first one joins it, the last one leaves it.
func (g *groups) add(group netip.Addr, users int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, after := g.users[group], g.users[group]+users
	option := unix.IPV6_LEAVE_GROUP
	if before == 0 {
		option = unix.IPV6_JOIN_GROUP
	}
	if before == 0 || after == 0 {
		request := &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(g.parent)}
		if err := unix.SetsockoptIPv6Mreq(int(g.socket.Fd()), unix.IPPROTO_IPV6, option, request); err != nil && users > 0 {
			return os.NewSyscallError("setsockopt IPV6_JOIN_GROUP", err)
		}
	}
	g.users[group] = after
	if after == 0 {
		delete(g.users, group)
	}
	return nil
}
