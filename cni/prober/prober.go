// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/ethernet"
	"github.com/vishvananda/netlink"

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
	link   netlink.Link
	lower  func() error
	params Params
	ears   []*ear
	all    sync.WaitGroup

	mu sync.Mutex
	// users are the MACs that use the probed addresses; "" while none is known.
	users map[netip.Addr]string
	// answered tells that users has changed. It has room for one value.
	answered  chan struct{}
	protocols []ethernet.EtherType
}

// Open opens the interface in the network namespace at netNS for addresses of the families of addrs,
// and raises it until Close. Its error wraps ErrNoInterface, ErrNoSegment or ErrNoCarrier if one applies.
func Open(ctx context.Context, netNS, iface string, addrs []netip.Addr, params Params) (_ *Prober, err error) {
	p := &Prober{
		netNS: netNS, params: params, lower: func() error { return nil },
		users: map[netip.Addr]string{}, answered: make(chan struct{}, 1), protocols: protocolsOf(addrs),
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("probe from %s in %s: %w", iface, netNS, errors.Join(err, p.Close()))
		}
	}()
	err = inside(netNS, func() (err error) {
		if p.link, err = find(iface); err != nil {
			return err
		}
		lower, err := raise(ctx, p.link)
		if err != nil {
			return err
		}
		p.lower = lower
		return p.listen(&net.Interface{Index: p.link.Attrs().Index})
	})
	if err != nil {
		return p, err
	}
	if parent := parentThatHears(p.link); parent != nil {
		if err := p.listen(parent); err != nil {
			return p, fmt.Errorf("hear on the parent, interface %d: %w", parent.Index, err)
		}
	}
	return p, nil
}

// listen hears on an interface of the thread's network namespace.
func (p *Prober) listen(i *net.Interface) error {
	for _, protocol := range p.protocols {
		e, err := openEar(i, protocol)
		if err != nil {
			return err
		}
		p.ears = append(p.ears, e)
		p.all.Go(func() { e.hear(p.heard) })
	}
	return nil
}

// Probe probes addresses and returns the MACs of the hosts that use them. It includes hosts that
// were heard since Open for addresses of earlier calls. It returns as soon as a host uses one of
// the addresses, and otherwise after all rounds.
func (p *Prober) Probe(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]string, error) {
	p.mu.Lock()
	for _, addr := range addrs {
		if _, known := p.users[addr]; !known {
			p.users[addr] = ""
		}
	}
	p.mu.Unlock()
	for range p.params.Rounds {
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
	}
	return nil, p.checkCarrier()
}

// Drop ends the interest in an address.
func (p *Prober) Drop(addr netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.users, addr)
}

// wait waits until a host is known to use an address, or for the interval.
func (p *Prober) wait(ctx context.Context) error {
	timer := time.NewTimer(p.params.Interval)
	defer timer.Stop()
	for len(p.found()) == 0 {
		select {
		case <-p.answered:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// found returns the addresses that hosts use.
func (p *Prober) found() map[netip.Addr]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := maps.Clone(p.users)
	maps.DeleteFunc(used, func(_ netip.Addr, mac string) bool { return mac == "" })
	return used
}

// heard takes in what a host said.
func (p *Prober) heard(s speech) {
	own := p.link.Attrs().HardwareAddr
	if slices.ContainsFunc(p.params.Ignore, func(mac net.HardwareAddr) bool { return bytes.Equal(mac, s.mac) }) ||
		s.asks && bytes.Equal(s.mac, own) {
		return
	}
	p.mu.Lock()
	mac, probed := p.users[s.addr]
	if !probed || mac != "" {
		p.mu.Unlock()
		return
	}
	// Two hosts that probe one address at the same time would both give way (RFC 5227 section
	// 2.1.1). Here the greater MAC gives way, if it hears the other one.
	defend := s.asks && bytes.Compare(own, s.mac) < 0
	if !defend {
		p.users[s.addr] = s.mac.String()
	}
	p.mu.Unlock()
	if defend {
		// Without the answer the next round speaks.
		_ = p.send(s.addr)
		return
	}
	select {
	case p.answered <- struct{}{}:
	default:
	}
}

// send sends one probe.
func (p *Prober) send(addr netip.Addr) error {
	frame, err := frames.Probe(p.link.Attrs().HardwareAddr, nil, addr)
	if err != nil {
		return err
	}
	for _, e := range p.ears {
		if e.protocol != protocolOf(addr) || e.index != p.link.Attrs().Index {
			continue
		}
		if err := e.say(frame); err != nil {
			return fmt.Errorf("probe %s from %s in %s: %w", addr, p.link.Attrs().Name, p.netNS, err)
		}
		return nil
	}
	return fmt.Errorf("probe %s: no socket", addr)
}

// checkCarrier returns an error if silence proves nothing.
func (p *Prober) checkCarrier() error {
	return inside(p.netNS, func() error {
		has, err := hasCarrier(p.link.Attrs().Name)
		if err == nil && !has {
			err = ErrNoCarrier
		}
		return err
	})
}

// Close closes the sockets, and sets the link down if Open has raised it.
func (p *Prober) Close() error {
	// The kernel waits for a grace period of RCU at the end of each packet socket
	// (net/packet/af_packet.c packet_release). Closed together, they share one.
	errs := make([]error, len(p.ears))
	for i, e := range p.ears {
		p.all.Go(func() { errs[i] = e.conn.Close() })
	}
	p.all.Wait()
	if p.link != nil {
		errs = append(errs, inside(p.netNS, p.lower))
	}
	return errors.Join(errs...)
}
