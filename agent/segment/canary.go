// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// The questions to canaries. A canary answers at once. Only a mute parent takes canaryMax ×
// canaryRounds × canaryInterval.
const (
	canaryMax      = 8
	canaryRounds   = 3
	canaryInterval = 50 * time.Millisecond
)

// canaries returns the hosts whose answer shows that others hear this parent (R2): the gateway of
// the pool, and the hosts that were last heard on the segment. The address that is verified is not
// among them.
func (s *Segment) canaries(v Verification) ([]netip.Addr, error) {
	addr := v.Claim.Addr
	speakers, err := s.set.kernel.Speakers(uint32(s.parent), addr.Is4(), canaryMax+2)
	if err != nil {
		return nil, fmt.Errorf("choose a canary: %w", err)
	}
	return chooseCanaries(addr, v.Gateway, speakers), nil
}

// chooseCanaries puts the gateway first, and leaves out addr.
func chooseCanaries(addr, gateway netip.Addr, speakers []netip.Addr) []netip.Addr {
	var chosen []netip.Addr
	for _, c := range append([]netip.Addr{gateway}, speakers...) {
		if len(chosen) < canaryMax && c.IsValid() && c != addr && !slices.Contains(chosen, c) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// anyAnswers asks canaries one after the other, and returns the first that answers, or an invalid
// address. ignore lists proxies, which answer for others.
func (s *Segment) anyAnswers(ctx context.Context, canaries []netip.Addr, ignore []net.HardwareAddr) (netip.Addr, error) {
	for _, c := range canaries {
		answers, err := s.canaryAnswers(ctx, c, ignore)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("ask canary %s: %w", c, err)
		}
		if answers {
			s.asked(true)
			return c, nil
		}
	}
	if len(canaries) > 0 {
		s.asked(false)
	}
	return netip.Addr{}, nil
}

// asked notes whether a canary has answered.
func (s *Segment) asked(answered bool) {
	s.mute.Store(!answered)
	s.set.onAsked(s.name, answered)
}

// canaryAnswers asks a canary. Only a reply to the question counts. Other frames do not show that
// the host hears this parent.
func (s *Segment) canaryAnswers(ctx context.Context, canary netip.Addr, ignore []net.HardwareAddr) (_ bool, err error) {
	p, err := s.newProbing(canary, ProbeParams{Rounds: canaryRounds, Interval: canaryInterval, Ignore: ignore})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, p.watch.end()) }()
	if p.watch.held.Slot != 0 {
		return false, nil // a pod of this node, whose answer would prove nothing
	}
	p.question, p.answers.replying = true, true
	for range canaryRounds {
		if err := p.round(ctx, p.gap()); err != nil || p.over() {
			return p.answer.Conflict, err
		}
	}
	return false, nil
}
