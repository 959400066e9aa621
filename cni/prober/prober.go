// SPDX-License-Identifier: Apache-2.0

// Package prober asks the segment of a container's interface whether other hosts use addresses, by
// ARP probes (RFC 5227 section 2.1) and neighbour solicitations (RFC 4862 section 5.4). It hears
// the answers through packet sockets on the interface itself, so that remote hosts and the
// neighbours on the same machine answer alike.
package prober

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/frames"
)

// Params are the times of a probe and its exceptions.
type Params struct {
	// Rounds is the number of probes for each address, and Interval the time after each.
	Rounds   int
	Interval time.Duration
	// Ignore lists proxies: MACs whose answers are no conflict.
	Ignore []net.HardwareAddr
}

// Prober probes from one interface of a container. It belongs to one goroutine.
type Prober struct {
	netNS  string
	link   *link
	params Params
	// ears are the sockets. The first one is on the link itself.
	ears []*ear
	// users are the MACs that use the probed addresses; "" while none is known.
	users map[netip.Addr]string
	// defended: another host that probes one of the addresses was told to give way.
	defended bool
	// met: a frame of another host came in.
	met bool
	// kept: the link stays up after Close.
	kept bool
}

// Open opens the interface in the network namespace at netNS for addresses of the families of addrs,
// and raises it. Its error wraps ErrNoInterface, ErrNoSegment or ErrNoCarrier if one applies.
func Open(ctx context.Context, netNS, iface string, addrs []netip.Addr, params Params) (_ *Prober, err error) {
	p := &Prober{netNS: netNS, params: params, users: map[netip.Addr]string{}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("probe from %s in %s: %w", iface, netNS, errors.Join(err, p.Close()))
		}
	}()
	err = inside(netNS, func(caller ns.NetNS) (err error) {
		if p.link, err = openLink(iface); err != nil {
			return err
		}
		if err := p.link.raise(); err != nil {
			return err
		}
		if err := p.link.awaitForwarding(ctx, caller); err != nil {
			return err
		}
		if err := p.link.awaitCarrier(ctx); err != nil {
			return err
		}
		if err := p.listen(p.link.Attrs().Index, addrs); err != nil {
			return err
		}
		return p.listenBelow(caller, addrs)
	})
	return p, err
}

// listenBelow hears on the parent of an ipvlan too. The answers to a probe of an ipvlan arrive there:
// they go to the MAC of the parent, and no ipvlan has the address (drivers/net/ipvlan/ipvlan_core.c
// ipvlan_handle_mode_l2).
func (p *Prober) listenBelow(caller ns.NetNS, addrs []netip.Addr) error {
	if p.link.Type() != "ipvlan" {
		return nil
	}
	parent, ok, err := belowOf(p.link.Link, caller)
	if err == nil && !ok {
		err = errors.New("it is neither in the container nor in the network namespace of the plugin")
	}
	if err == nil {
		err = parent.do(func() error { return p.listen(parent.index, addrs) })
	}
	if err != nil {
		return fmt.Errorf("hear on the parent, interface %d: %w", parent.index, err)
	}
	return nil
}

// listen hears on an interface of the thread's network namespace.
func (p *Prober) listen(index int, addrs []netip.Addr) error {
	e, err := openEar(&net.Interface{Index: index}, slices.ContainsFunc(addrs, netip.Addr.Is6))
	if err != nil {
		return err
	}
	p.ears = append(p.ears, e)
	return nil
}

// Probe probes addresses and returns the MACs of the hosts that use them. It includes hosts that
// were heard since Open for addresses of earlier calls. It returns as soon as a host uses one of
// the addresses, and otherwise after all rounds.
//
// If no host uses the addresses, the kernel answers for those of IPv4 from then on. So a host whose
// probe begins later hears the answer, however late the address is configured.
func (p *Prober) Probe(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]string, error) {
	for _, addr := range addrs {
		if _, known := p.users[addr]; !known {
			p.users[addr] = ""
		}
	}
	for round := 1; ; round++ {
		p.defended = false
		for _, addr := range addrs {
			if err := p.send(addr); err != nil {
				return nil, err
			}
		}
		if err := p.wait(ctx); err != nil {
			return nil, err
		}
		if found := p.found(); len(found) > 0 {
			return found, nil
		}
		if round < p.params.Rounds {
			continue
		}
		for _, addr := range addrs {
			if err := p.link.answerFor(addr); err != nil {
				return nil, err
			}
		}
		// A frame from before the answers is in the socket by now.
		if err := p.hear(); err != nil {
			return nil, err
		}
		if found := p.found(); len(found) > 0 {
			return found, nil
		}
		// A host that was told to give way may have ended its probe before. Then it answers now.
		if p.defended {
			continue
		}
		has, err := p.link.hasCarrier()
		if err == nil && !has {
			err = ErrNoCarrier
		}
		return nil, err
	}
}

// Drop ends the interest in an address.
func (p *Prober) Drop(addr netip.Addr) error {
	delete(p.users, addr)
	return p.link.endAnswerFor(addr)
}

// contextPoll is the time between two looks at the context.
const contextPoll = 50 * time.Millisecond

// wait hears until a host is known to use an address, or for the interval.
func (p *Prober) wait(ctx context.Context) error {
	end := time.Now().Add(p.params.Interval)
	var sockets []unix.PollFd
	for _, e := range p.ears {
		sockets = append(sockets, unix.PollFd{Fd: int32(e.fd), Events: unix.POLLIN})
	}
	for {
		if err := p.hear(); err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 || len(p.found()) > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		timeout := unix.NsecToTimespec(min(left, contextPoll).Nanoseconds())
		if _, err := unix.Ppoll(sockets, &timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("ppoll", err)
		}
	}
}

func (p *Prober) hear() error {
	for _, e := range p.ears {
		if err := e.hear(p.heard); err != nil {
			return err
		}
	}
	return nil
}

func (p *Prober) found() map[netip.Addr]string {
	used := maps.Clone(p.users)
	maps.DeleteFunc(used, func(_ netip.Addr, mac string) bool { return mac == "" })
	return used
}

// heard takes in what a host said.
func (p *Prober) heard(s speech) error {
	own := p.link.mac
	p.met = p.met || !bytes.Equal(s.mac, own)
	if slices.ContainsFunc(p.params.Ignore, func(mac net.HardwareAddr) bool { return bytes.Equal(mac, s.mac) }) ||
		s.asks && bytes.Equal(s.mac, own) {
		return nil
	}
	if mac, probed := p.users[s.addr]; !probed || mac != "" {
		return nil
	}
	// Two hosts that probe one address at the same time would both give way (RFC 5227 section
	// 2.1.1). Here the greater MAC gives way, if it hears the other one.
	if s.asks && bytes.Compare(own, s.mac) < 0 {
		p.defended = true
		return p.send(s.addr)
	}
	p.users[s.addr] = s.mac.String()
	return nil
}

func (p *Prober) send(addr netip.Addr) error {
	frame, err := frames.Probe(p.link.mac, nil, addr)
	if err != nil {
		return err
	}
	if err := p.say(frame); err != nil {
		return fmt.Errorf("probe %s from %s in %s: %w", addr, p.link.name, p.netNS, err)
	}
	return nil
}

// say sends a frame on the link, and on the parent that hears. A broadcast of an ipvlan waits in a queue
// of the kernel, on a busy machine for longer than a probe lasts (drivers/net/ipvlan/ipvlan_core.c
// ipvlan_process_multicast). That of the parent leaves at once, but does not reach its other ipvlans.
func (p *Prober) say(frame []byte) error {
	for _, e := range p.ears {
		if err := e.say(frame); err != nil {
			return err
		}
	}
	return nil
}

// young is the age below which a link may lead to a switch that does not forward yet: it drops all frames
// for 30 s by default (IEEE 802.1D-1998 section 8.4), and the link of a machine that boots comes up later.
const young = time.Minute

// Doubt returns the reason why silence may prove nothing although the link has its carrier, or "".
func (p *Prober) Doubt() string {
	var up unix.Timespec
	if p.met || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) == nil && time.Duration(up.Nano()) > young && !(p.link.raised && p.link.edge) {
		return ""
	}
	return fmt.Sprintf("no other host was heard on %s, whose link has just come up: a switch with spanning tree drops all frames for 30 s then", p.link.name)
}

// Keep announces the addresses, and has Close leave the interface up. The kernel would announce those of
// IPv4 when the plugin of the interface sets it up (arp_notify), and those of IPv6 after their duplicate
// address detection (ndisc_notify), which the plugins bridge and host-device do not set.
func (p *Prober) Keep(addrs []netip.Addr) error {
	for _, addr := range addrs {
		announcements, err := frames.Announce(p.link.mac, addr)
		if err != nil {
			return err
		}
		for _, frame := range announcements {
			if err := p.say(frame); err != nil {
				return fmt.Errorf("announce %s on %s in %s: %w", addr, p.link.name, p.netNS, err)
			}
		}
	}
	p.kept = true
	return nil
}

// Close closes the sockets. It leaves the link as it was before Open, unless Keep was called.
func (p *Prober) Close() error {
	var errs []error
	if p.link != nil {
		if !p.kept {
			errs = append(errs, p.link.restore())
		}
		errs = append(errs, p.link.close())
	}
	closing := make([]error, len(p.ears))
	var all sync.WaitGroup
	for i, e := range p.ears { // those that wait, wait together
		all.Go(func() { closing[i] = e.leave() })
	}
	all.Wait()
	return errors.Join(append(errs, closing...)...)
}
