// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/attachment"
)

// mode is the reaction to a part that is wrong.
type mode bool

const (
	// mend repairs it.
	mend mode = true
	// look names it in an error that wraps ErrBroken.
	look mode = false
)

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrBroken, fmt.Errorf(format, args...))
}

// Check returns an error that wraps ErrBroken or ErrGone and names the first thing that is wrong with
// an entry's interface or its routing.
func (l *Links) Check(e *attachment.Entry) error {
	p, err := openPod(e)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.checkInterface(e); err != nil || e.Routing == nil {
		return err
	}
	node, err := nodeAddresses(l.node)
	if err != nil {
		return err
	}
	plan, known, err := l.plan(e, p, node)
	if err != nil {
		return err
	}
	_, err = l.carryOut(e, p, plan, known, look)
	return err
}

// checkInterface checks the interface of the entry: up, its MAC, its addresses.
func (p *pod) checkInterface(e *attachment.Entry) error {
	attrs := p.own.Attrs()
	if attrs.RawFlags&unix.IFF_UP == 0 {
		return broken("interface %s is down", e.Interface)
	}
	if attrs.HardwareAddr.String() != e.MAC {
		return broken("interface %s has MAC %s, and its lease has %s", e.Interface, attrs.HardwareAddr, e.MAC)
	}
	addrs, err := p.links.AddrList(p.own, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list the addresses of interface %s: %w", e.Interface, err)
	}
	for _, address := range e.Addresses {
		if !hasAddress(addrs, address.Addr) {
			return broken("interface %s does not have %s", e.Interface, address.Addr)
		}
	}
	return nil
}

func hasAddress(addrs []netlink.Addr, addr netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return addrOf(a.IP) == addr })
}
