package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mdlayher/ethernet"

	"github.com/fenceline/fenceline/agent/claim"
)

const (
	// claimCount claims are sent, claimGap apart: one lost frame loses no fence.
	claimCount = 3
	claimGap   = 5 * time.Millisecond
	// counterClaimWait is how long another holder's kernel and agent have to
	// answer a claim with a newer one before the address is announced (R10).
	counterClaimWait = 20 * time.Millisecond
)

var (
	// ErrNoKey is returned by claims while no claim key is set.
	ErrNoKey = errors.New("no claim key is set")
	// ErrFenced is returned when a newer claim has fenced an address held here.
	ErrFenced = errors.New("a newer claim has fenced the address")
)

// Claim tells the segment three times that the address belongs to the token, by
// broadcast and by unicast to the previous holder. The caller has installed its
// own lease in the kernel and killed local slots before. In the modes Observe
// and Off it does nothing. Safe for concurrent use.
func (s *Segment) Claim(ctx context.Context, c Claim) error {
	if !claims(c.Mode) {
		return nil
	}
	for i := range claimCount {
		if i > 0 {
			if err := sleep(ctx, s.set.clock, claimGap); err != nil {
				return fmt.Errorf("claim %s on %s: %w", c.Addr, s.name, err)
			}
		}
		if err := s.claimOnce(ctx, c, c.PreviousMAC); err != nil {
			return err
		}
	}
	return nil
}

// ClaimAndConfirm claims, leaves 20 ms for a newer claim to come back, and
// returns an error that wraps ErrFenced if one did (R10). Only after nil may
// the address be announced. The lease is installed in the kernel. In the modes
// Observe and Off, in which nobody claims, it returns at once.
func (s *Segment) ClaimAndConfirm(ctx context.Context, c Claim) error {
	if !claims(c.Mode) {
		return nil
	}
	if err := s.Claim(ctx, c); err != nil {
		return err
	}
	if err := sleep(ctx, s.set.clock, counterClaimWait); err != nil {
		return fmt.Errorf("wait for a newer claim of %s on %s: %w", c.Addr, s.name, err)
	}
	fenced, err := s.set.kernel.Fenced(s.key(c.Addr))
	if err != nil {
		return fmt.Errorf("see whether %s is fenced: %w", c.Addr, err)
	}
	if fenced {
		return fmt.Errorf("claim %s on %s with token %d: %w", c.Addr, s.name, c.Token, ErrFenced)
	}
	return nil
}

// claimOnce sends one claim to all, and to one station by unicast if that is known,
// under each key.
func (s *Segment) claimOnce(ctx context.Context, c Claim, station net.HardwareAddr) error {
	err := s.sendClaim(ctx, c, station)
	if err != nil {
		return fmt.Errorf("claim %s on %s: %w", c.Addr, s.name, err)
	}
	return nil
}

func (s *Segment) sendClaim(ctx context.Context, c Claim, station net.HardwareAddr) error {
	keys := s.set.keys()
	if len(keys) == 0 {
		return ErrNoKey
	}
	l, err := s.wire.link()
	if err != nil {
		return err
	}
	to := []net.HardwareAddr{ethernet.Broadcast}
	if len(station) > 0 {
		to = append(to, station)
	}
	frame := claim.Frame{Flags: claim.Asks(c.PreviousMAC), Network: c.Network, Addr: c.Addr, Token: c.Token}
	for _, key := range keys {
		for _, dst := range to {
			b, err := frame.Ethernet(dst, l.mac, key)
			if err != nil {
				return err
			}
			if err := s.pacer.do(ctx, func() error { return s.wire.send(b) }); err != nil {
				return fmt.Errorf("send to %s: %w", dst, err)
			}
			s.set.stats.claimsSent.Add(1)
		}
	}
	return nil
}
