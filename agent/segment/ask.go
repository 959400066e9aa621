// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

// The schedule of Ask. It is slower than that of a probe, because a busy router, or one that limits
// its ARP, may answer late. Only silence takes all of it.
const (
	askRounds   = 5
	askInterval = 200 * time.Millisecond
	// askRecent is how long a frame of the address counts, so that a burst of pods asks once.
	askRecent = time.Second
)

// Reply is the result of Ask.
type Reply struct {
	// Answered: the host with this MAC uses the address.
	Answered bool
	MAC      net.HardwareAddr
	// Hearing tells whether the parent hears other nodes. It is set only if no host answered.
	Hearing Hearing
}

// Ask asks for an address that another host should use, such as a gateway. It returns at the first
// answer, or after a second without one. The question is a probe, which claims no address. The
// answers of proxies count, and the probes of others do not. The mode of the pool does not matter.
//
// An address of this node's own parent may go unanswered, since the kernel does not hear its own
// frames. Safe for concurrent use.
func (s *Segment) Ask(ctx context.Context, addr netip.Addr) (r Reply, err error) {
	defer func() {
		if err != nil {
			r, err = Reply{}, fmt.Errorf("ask for %s on %s: %w", addr, s.name, err)
		}
	}()
	p, err := s.newProbing(addr, ProbeParams{Rounds: askRounds, Interval: askInterval})
	if err != nil {
		return Reply{}, err
	}
	defer func() { err = errors.Join(err, p.watch.end()) }()
	if held := p.watch.held; held.Slot != 0 {
		return Reply{Answered: true, MAC: held.MAC}, nil // held by a pod of this node, whose frames are no hits
	}
	p.answers.asking = true
	p.answers.start -= askRecent
	if err := p.readState(); err != nil {
		return Reply{}, err
	}
	for range askRounds {
		if p.over() {
			break
		}
		if err := p.round(ctx, p.gap()); err != nil {
			return Reply{}, err
		}
	}
	if p.answer.Conflict {
		return Reply{Answered: true, MAC: p.answer.MAC}, nil
	}
	h, err := s.Hearing()
	return Reply{Hearing: h}, err
}

// newsMax is how many hits of new speakers the kernel reports (HIT_NEWS_MAX).
const newsMax = 8

// Answerers asks a few times for an address that another host should use, and returns the MACs of all
// hosts that answer by the uplink. Answers of this node's pods prove nothing about other hosts. It
// returns an error if there were so many answers that one may be missing. Safe for concurrent use.
func (s *Segment) Answerers(ctx context.Context, addr netip.Addr) (macs []net.HardwareAddr, err error) {
	defer func() {
		if err != nil {
			macs, err = nil, fmt.Errorf("ask which hosts use %s on %s: %w", addr, s.name, err)
		}
	}()
	p, err := s.newProbing(addr, ProbeParams{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.watch.end()) }()
	p.question = true
	heard := 0
	for range canaryRounds {
		if err := p.send(ctx, nil); err != nil {
			return nil, err
		}
		timer := s.set.clock.NewTimer(canaryInterval)
		defer timer.Stop()
		for listening := true; listening; {
			select {
			case ev := <-p.watch.events:
				heard++
				uplink := ev.Type == bpf.EventHit && ev.Where == bpf.WhereObserverIngress && ev.Kind.Answers()
				if uplink && !contains(macs, ev.MAC) {
					macs = append(macs, ev.MAC)
				}
			case <-timer.C():
				listening = false
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
	if heard > newsMax {
		return nil, errTooMany
	}
	return macs, nil
}

var errTooMany = errors.New("too many hosts use it")
