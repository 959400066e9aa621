// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"
)

// groups are the solicited-node groups that a parent has joined. Safe for concurrent use.
type groups struct {
	parent int
	netns  ns.NetNS

	mu      sync.Mutex
	members map[netip.Addr]*member
}

// member is the membership in one group, for all addresses that end with its 24 bits.
type member struct {
	// socket holds this membership only: one socket has room for about 300 (net.core.optmem_max).
	socket int
	users  int
}

// openGroups returns the groups of a parent in the calling thread's network namespace.
func openGroups(parent int) (*groups, error) {
	here, err := ns.GetCurrentNS()
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	return &groups{parent: parent, netns: here, members: make(map[netip.Addr]*member)}, nil
}

// Join joins the solicited-node group of an IPv6 address until leave is called, as a host does
// before DAD (RFC 4862 section 5.4.2). A switch with MLD snooping forwards neighbour solicitations
// only to members of that group. It does nothing for IPv4, or in a kernel without IPv6.
func (p *Parent) Join(addr netip.Addr) (leave func(), err error) {
	if !addr.Is6() {
		return func() {}, nil
	}
	group, err := ndp.SolicitedNodeMulticast(addr)
	if err != nil {
		return nil, fmt.Errorf("solicited-node group of %s: %w", addr, err)
	}
	leave, err = p.groups.join(group)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("join group %s: %w", group, err)
	}
	return leave, nil
}

func (g *groups) join(group netip.Addr) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[group]
	if m == nil {
		m = &member{}
		if m.socket, err = g.open(group); err != nil {
			return nil, err
		}
		g.members[group] = m
	}
	m.users++
	return func() { g.leave(group, m) }, nil
}

// open returns a socket that is a member of the group.
func (g *groups) open(group netip.Addr) (socket int, err error) {
	err = g.netns.Do(func(ns.NetNS) error {
		socket, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, err
	}
	request := &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(g.parent)}
	if err := unix.SetsockoptIPv6Mreq(socket, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, request); err != nil {
		return -1, errors.Join(err, unix.Close(socket))
	}
	return socket, nil
}

// leave removes a user of a membership, which ends with its last user.
func (g *groups) leave(group netip.Addr, m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.users--
	if m.users == 0 && g.members[group] == m {
		delete(g.members, group)
		_ = unix.Close(m.socket)
	}
}

func (g *groups) close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for group, m := range g.members {
		delete(g.members, group)
		_ = unix.Close(m.socket)
	}
	return g.netns.Close()
}
