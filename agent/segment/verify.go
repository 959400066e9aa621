// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
)

// switchOffWait is how long claims are repeated to a holder without a guard. Cards take up to some
// hundred milliseconds to switch a VF off.
const switchOffWait = time.Second

// Verify checks whether an address that was taken from a holder may be handed out again. It claims
// the address, waits for an ack and probes, and returns the verdict of Judge with the evidence.
//
// After an ack it sends one more probe round and ends. The ack proves that one holder is fenced,
// but a stranger may have taken the address meanwhile. In that round, frames of the previous
// holder's MAC count as late frames. But a stranger may have the same MAC. So if there are such
// frames, Verify probes once more, and sends a unicast probe, which a fenced holder does not answer.
// If the MAC is not known, the round waits until no more late frames are expected.
//
// An error means that the attempt failed. The verdict is Unknown then. Safe for concurrent use.
func (s *Segment) Verify(ctx context.Context, v Verification) (Verdict, Evidence, error) {
	e, err := s.gather(ctx, v)
	if err != nil {
		return Unknown, e, fmt.Errorf("verify %s on %s: %w", v.Claim.Addr, s.name, err)
	}
	return Judge(e), e, nil
}

// gather claims and probes, and collects the evidence.
func (s *Segment) gather(ctx context.Context, v Verification) (e Evidence, err error) {
	e = v.Evidence()
	if e.Carrier, e.Observed, err = s.hears(); err != nil {
		return e, err
	}
	if !speaks(v.Claim.Mode) || !e.Carrier || !e.Observed {
		return e, nil
	}
	p, err := s.newProbing(v.Claim.Addr, v.probeParams())
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, p.watch.end()) }()

	e.HeldHere = p.heldHere(v)
	if err := p.heedOwn(); err != nil {
		return e, err
	}
	if err := p.verify(ctx, v); err != nil {
		return e, err
	}
	e.Acked, e.AckMAC, e.Claimed = p.acked, p.ackMAC, p.claimed
	if !e.HeldHere {
		e.Unanswered = p.unanswered
	}
	e.Answer = p.answer
	e.ByPrevious = p.answer.Conflict && sameMAC(p.answer.MAC, v.Claim.PreviousMAC) && !p.twin
	// If the carrier was lost meanwhile, silence proves nothing.
	if e.Carrier, e.Observed, err = s.hears(); err != nil {
		return e, err
	}
	if e.HeardAgo, e.Heard, err = s.heardAgo(); err != nil || !e.needsCanary() {
		return e, err
	}
	canaries, shared, err := s.canaries.choose(v)
	if err != nil {
		return e, err
	}
	e.Asked, e.Shared = len(canaries), shared
	e.Canary, err = s.canaries.ask(ctx, canaries, v.Probe.Ignore)
	return e, err
}

// probeParams returns the parameters of the probe with the claim.
func (v Verification) probeParams() ProbeParams {
	p := v.Probe
	p.Mode = v.Claim.Mode
	p.PreviousMAC = v.Claim.PreviousMAC
	if claims(v.Claim.Mode) || v.SlotDead {
		p.Settle = SettleAfterClaim
	}
	return p
}

// verify claims and probes until there is an ack, a conflict, or no round left.
func (p *probing) verify(ctx context.Context, v Verification) error {
	if claims(v.Claim.Mode) {
		p.token = v.Claim.Token
		p.asked = claim.Asks(v.Claim.PreviousToken) != 0
	}
	if err := p.claimRound(ctx, v.Claim); err != nil {
		return err
	}
	if v.Unguarded && p.asked && !v.SlotDead {
		// The first claims make the holder's agent switch the VF off. Its kernel acknowledges only
		// claims that come after that.
		for end := p.now() + switchOffWait; p.now() < end && !p.over(); {
			if err := p.claimRound(ctx, v.Claim); err != nil {
				return err
			}
		}
	}
	if !p.over() && !v.SlotDead {
		if err := p.rounds(ctx, 1); err != nil {
			return err
		}
	}
	if p.answer.Conflict || !p.acked && !v.SlotDead || p.acked && p.deaf(v) {
		return nil // where an older lease is installed, as at the target of a live migration, no stranger is heard
	}
	return p.strangerRound(ctx)
}

// heldHere reports whether an older lease is installed here: the previous holder's, that of a pod behind it, or one
// that is not swept yet. The kernel reports acks then, but no speaker of an address that it fences.
func (p *probing) heldHere(v Verification) bool {
	return p.watch.held.Slot != 0 && p.watch.held.Token < v.Claim.Token
}

// deaf reports whether the kernel hides speakers, as those of an older lease that the claim fences here.
func (p *probing) deaf(v Verification) bool {
	h := p.watch.held
	return p.heldHere(v) && h.Flags&bpf.FlagUnproven == 0 && h.Network == v.Claim.Network
}

// claimRound sends the claims and the first probe round. The claim comes first: a holder that hears
// both is fenced before it can answer.
func (p *probing) claimRound(ctx context.Context, c Claim) error {
	var end time.Duration
	for i := range claimCount {
		if p.token != 0 {
			if err := p.seg.claimOnce(ctx, c, c.PreviousMAC); err != nil {
				return err
			}
			if p.claimed.IsZero() {
				p.claimed = p.seg.set.clock.Now()
			}
		}
		if i == 0 {
			if err := p.send(ctx, nil); err != nil {
				return err
			}
			end = p.now() + p.gap() // the frames may have waited for their turn
		}
		if err := p.listen(ctx, claimGap); err != nil || p.over() {
			return err
		}
	}
	if err := p.listen(ctx, end-p.now()); err != nil {
		return err
	}
	if !p.over() {
		p.unanswered++
	}
	return nil
}

// strangerRound probes once more after the fence, to find another host that uses the address.
func (p *probing) strangerRound(ctx context.Context) error {
	p.passAck = true
	p.answers.fence()
	if len(p.params.PreviousMAC) == 0 {
		if err := p.listen(ctx, p.answers.settled-p.now()); err != nil || p.over() {
			return err
		}
	}
	start := p.now()
	if err := p.round(ctx, p.params.Interval); err != nil || p.over() || !p.answers.suspect {
		return err
	}
	return p.findTwin(ctx, start+p.params.Settle)
}

// findTwin looks for another host with the MAC of the fenced holder, once no more late frames are
// expected. If the MAC answers a broadcast probe, it gets a unicast probe at once: its answer has
// just shown the switches the port of the host. Only a host answers both.
func (p *probing) findTwin(ctx context.Context, settled time.Duration) error {
	if err := p.listen(ctx, settled-p.now()); err != nil || p.over() {
		return err
	}
	p.answers.suspect, p.toSuspect = false, true
	err := p.round(ctx, p.params.Interval)
	p.toSuspect = false
	if err != nil || p.over() || !p.answers.suspect {
		return err
	}
	if err := p.confirm(ctx); err != nil {
		return err
	}
	p.twin = p.answer.Conflict && !p.answer.Kind.Tentative()
	return nil
}

// hears reports whether the parent has carrier and the observer is attached.
func (s *Segment) hears() (carrier, observed bool, err error) {
	carrier, _, err = s.wire.Carrier()
	if err != nil {
		return false, false, err
	}
	attached, err := s.set.kernel.Observers.Attached()
	if err != nil {
		return false, false, fmt.Errorf("check observers: %w", err)
	}
	return carrier, attached[s.parent], nil
}

// heardAgo returns how long ago a valid claim or ack of another node came in, false if none did.
func (s *Segment) heardAgo() (time.Duration, bool, error) {
	at, ok, err := s.set.kernel.Sightings.Heard(uint32(s.parent))
	if err != nil {
		return 0, false, fmt.Errorf("read when another node was heard: %w", err)
	}
	if !ok {
		return 0, false, nil
	}
	return s.set.kernel.Now() - at, true, nil
}
