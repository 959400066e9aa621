// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// The questions to canaries. A canary answers at once, so only a mute parent takes all this time.
const (
	canaryMax      = 8
	canaryRounds   = 3
	canaryInterval = 50 * time.Millisecond
)

// canaries are the hosts of a segment whose answer shows that others hear this parent (R2).
type canaries struct {
	seg *Segment
	// mute: none answered when the last one was asked.
	mute atomic.Bool
}

// choose returns the gateway of the pool, and then the hosts that were last heard on the segment. If
// the parent is shared, any of them may be a host of this node, so it returns addresses for which
// other nodes vouch by their claims. The address that is verified is not among them.
func (c *canaries) choose(v Verification) (chosen []netip.Addr, shared bool, err error) {
	kernel, segment, addr := c.seg.set.kernel, uint32(c.seg.parent), v.Claim.Addr
	shared, err = c.seg.wire.Shared()
	if err != nil {
		return nil, shared, fmt.Errorf("choose a canary: %w", err)
	}
	var hosts []netip.Addr
	if shared {
		hosts, err = kernel.Sightings.Vouched(segment, addr.Is4(), HearingWindow, canaryMax+1)
	} else {
		hosts, err = kernel.Sightings.Speakers(segment, addr.Is4(), canaryMax+2)
		hosts = append([]netip.Addr{v.Gateway}, hosts...)
	}
	if err != nil {
		return nil, shared, fmt.Errorf("choose a canary: %w", err)
	}
	for _, host := range hosts {
		if len(chosen) < canaryMax && host.IsValid() && host != addr && !slices.Contains(chosen, host) {
			chosen = append(chosen, host)
		}
	}
	return chosen, shared, nil
}

// ask asks some one after the other, and returns the first that answers, or an invalid address.
// ignore lists proxies, which answer for others.
func (c *canaries) ask(ctx context.Context, some []netip.Addr, ignore []net.HardwareAddr) (netip.Addr, error) {
	for _, addr := range some {
		answers, err := c.answers(ctx, addr, ignore)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("ask canary %s: %w", addr, err)
		}
		if answers {
			c.note(true)
			return addr, nil
		}
	}
	if len(some) > 0 {
		c.note(false)
	}
	return netip.Addr{}, nil
}

// note notes whether one has answered.
func (c *canaries) note(answered bool) {
	c.mute.Store(!answered)
	c.seg.set.onAsked(c.seg.name, answered)
}

// answers asks one. Only a reply that comes in from outside counts: other frames, and those of the
// parent's children or its own, do not show that the host hears this parent.
func (c *canaries) answers(ctx context.Context, addr netip.Addr, ignore []net.HardwareAddr) (_ bool, err error) {
	p, err := c.seg.newProbing(addr, ProbeParams{Rounds: canaryRounds, Interval: canaryInterval, Ignore: ignore})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, p.watch.end()) }()
	if p.watch.held.Slot != 0 {
		return false, nil // a pod of this node, whose answer would prove nothing
	}
	p.question, p.answers.replying = true, true
	p.answers.ignore = append(slices.Clone(ignore), p.src)
	for range canaryRounds {
		if err := p.round(ctx, p.gap()); err != nil || p.over() {
			return p.answer.Conflict, err
		}
	}
	return false, nil
}
