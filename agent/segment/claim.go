// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mdlayher/ethernet"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
)

const (
	// claimCount claims are sent, claimGap apart, so that one lost frame does not prevent a fence.
	claimCount = 3
	claimGap   = 5 * time.Millisecond
	// counterClaimWait is how long a node with a newer token may take to answer the claim with its
	// own, before this node announces the address (R10).
	counterClaimWait = 20 * time.Millisecond
)

var (
	// ErrNoKey is returned by methods that claim while no claim key is set.
	ErrNoKey = errors.New("no claim key is set")
	// ErrFenced is returned if a newer claim has fenced an address held here.
	ErrFenced = errors.New("a newer claim has fenced the address")
)

// Claim claims the address for the token three times, by broadcast and by unicast to the previous
// holder. The caller must have installed its own lease in the kernel and killed the slots of
// earlier local holders. In the modes Observe and Off it does nothing. Safe for concurrent use.
func (s *Segment) Claim(ctx context.Context, c Claim) error {
	if !claims(c.Mode) {
		return nil
	}
	for i := range claimCount {
		if i > 0 {
			if err := Sleep(ctx, s.set.clock, claimGap); err != nil {
				return fmt.Errorf("claim %s on %s: %w", c.Addr, s.name, err)
			}
		}
		if err := s.claimOnce(ctx, c, c.PreviousMAC); err != nil {
			return err
		}
	}
	return nil
}

// ClaimAndConfirm claims like Claim and waits until a newer claim had 20 ms to come. After a verification, it claims
// once, and the wait counts from the verification's claim at c.Since. No token of this store is between those of both
// claims. Its error wraps ErrFenced if a newer claim came (R10). The caller may announce the address only after nil. In
// the modes Observe and Off it returns at once.
func (s *Segment) ClaimAndConfirm(ctx context.Context, c Claim) error {
	if !claims(c.Mode) {
		return nil
	}
	wait := counterClaimWait
	if c.Since.IsZero() {
		if err := s.Claim(ctx, c); err != nil {
			return err
		}
	} else {
		if err := s.claimOnce(ctx, c, c.PreviousMAC); err != nil { // others have just heard that of the verification
			return err
		}
		wait -= s.set.clock.Since(c.Since)
	}
	if err := Sleep(ctx, s.set.clock, wait); err != nil {
		return fmt.Errorf("wait for a newer claim of %s on %s: %w", c.Addr, s.name, err)
	}
	newer, err := s.set.hasNewerClaim(s.key(c.Addr))
	if err != nil {
		return fmt.Errorf("check whether %s is fenced: %w", c.Addr, err)
	}
	if newer {
		return fmt.Errorf("claim %s on %s with token %d: %w", c.Addr, s.name, c.Token, ErrFenced)
	}
	return nil
}

// hasNewerClaim reports whether a newer claim has fenced an address held here. That it is unproven does not count:
// the claim may be a part of the proof.
func (s *Segments) hasNewerClaim(key bpf.Key) (bool, error) {
	l, ok, err := s.kernel.Leases.Lease(key)
	if err != nil || !ok || l.Slot == 0 {
		return false, err
	}
	state, _, err := s.kernel.Leases.State(key)
	l.Flags &^= bpf.FlagUnproven
	return state.Fences(l), err
}

// claimOnce sends one claim under each key by broadcast, and to station if it is another host.
func (s *Segment) claimOnce(ctx context.Context, c Claim, station net.HardwareAddr) error {
	if err := s.sendClaim(ctx, c, station); err != nil {
		return fmt.Errorf("claim %s on %s: %w", c.Addr, s.name, err)
	}
	return nil
}

func (s *Segment) sendClaim(ctx context.Context, c Claim, station net.HardwareAddr) error {
	keys := s.set.keys()
	if len(keys) == 0 {
		return ErrNoKey
	}
	l, err := s.wire.Link()
	if err != nil {
		return err
	}
	to := []net.HardwareAddr{ethernet.Broadcast}
	if len(station) > 0 && !sameMAC(station, l.MAC) {
		to = append(to, station)
	}
	frame := claim.Frame{Flags: claim.Asks(c.PreviousToken), Network: c.Network, Addr: c.Addr, Token: c.Token}
	for _, key := range keys {
		for _, dst := range to {
			b, err := frame.Ethernet(dst, l.MAC, key)
			if err != nil {
				return err
			}
			if err := s.pacer.Do(ctx, func() error { return s.wire.Send(b) }); err != nil {
				return fmt.Errorf("send to %s: %w", dst, err)
			}
			s.set.claimsSent.Add(1)
		}
	}
	return nil
}
