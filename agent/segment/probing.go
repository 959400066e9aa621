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
	"github.com/fenceline/fenceline/internal/frames"
)

// Probe probes addr and returns at the first conflict, or after all rounds. The observer reports
// remote hosts and local siblings. If no lease of the address is installed in the kernel, Probe
// watches the address meanwhile.
//
// Probe does not judge silence: on a deaf parent it hears no host. Safe for concurrent use. All
// probes of a segment share one pacer.
func (s *Segment) Probe(ctx context.Context, addr netip.Addr, params ProbeParams) (_ Answer, err error) {
	if !speaks(params.Mode) {
		return Answer{}, nil
	}
	p, err := s.newProbing(addr, params)
	if err != nil {
		return Answer{}, fmt.Errorf("probe %s on %s: %w", addr, s.name, err)
	}
	defer func() { err = errors.Join(err, p.watch.end()) }()
	if err = p.heedOwn(); err == nil && !p.answer.Conflict {
		err = p.rounds(ctx, 0)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("probe %s on %s: %w", addr, s.name, err)
	}
	return p.answer, nil
}

// probing is one probe, which sends rounds and listens after each. It belongs to one goroutine.
type probing struct {
	seg     *Segment
	addr    netip.Addr
	src     net.HardwareAddr
	params  ProbeParams
	watch   *watch
	answers *answers

	// question: addr is a canary. Hosts that probe addr must not take these frames for probes.
	question bool
	// token of the claim; 0: none is sent.
	token uint64
	// asked: the claim asks a holder for its ack.
	asked bool
	acked bool
	// claimed is when the first claim was sent.
	claimed time.Time
	// ackedBefore is the token of the last ack before the probe.
	ackedBefore uint64
	// ackMAC is the parent from which the ack came.
	ackMAC net.HardwareAddr
	// passAck: an ack does not end listening any more.
	passAck bool

	answer Answer
	// toSuspect: listening ends with the first suspect frame.
	toSuspect bool
	// twin: the answer came from another host with the MAC of the previous holder, which is fenced.
	twin       bool
	unanswered int
}

// newProbing starts to watch addr. The caller must end the watch.
func (s *Segment) newProbing(addr netip.Addr, params ProbeParams) (*probing, error) {
	l, err := s.wire.Link()
	if err != nil {
		return nil, err
	}
	start := s.set.kernel.Now()
	w, err := s.startWatch(addr)
	if err != nil {
		return nil, err
	}
	before, _, err := s.set.kernel.Leases.State(w.key)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read state of %s: %w", w.key, err), w.end())
	}
	params = params.withDefaults()
	return &probing{
		seg: s, addr: addr, src: l.MAC, params: params,
		watch: w, answers: newAnswers(params, start), ackedBefore: before.AckedToken,
	}, nil
}

// rounds sends the rounds from number first on and listens after each. It sends the last two when
// no more late frames of the previous holder are expected. If the holder's MAC answers those, a
// unicast probe shows whether the holder itself answers.
func (p *probing) rounds(ctx context.Context, first int) error {
	for i := first; i < p.params.Rounds; i++ {
		if i == p.params.Rounds-2 {
			if err := p.listen(ctx, p.answers.settled-p.now()); err != nil || p.over() {
				return err
			}
			p.answers.lastTwo = p.now()
			// Storm control and ARP suppression may withhold broadcasts from the previous holder.
			if err := p.sendTo(ctx, p.params.PreviousMAC); err != nil {
				return err
			}
		}
		if err := p.round(ctx, p.gap()); err != nil || p.over() {
			return err
		}
	}
	if !p.answers.suspect {
		return nil
	}
	return p.confirm(ctx)
}

// confirm probes the previous holder's MAC by unicast. No switch answers such a probe for a host.
func (p *probing) confirm(ctx context.Context) error {
	p.answers.confirming = p.now()
	if err := p.sendTo(ctx, p.params.PreviousMAC); err != nil {
		return err
	}
	return p.listen(ctx, p.params.Interval)
}

// round sends one broadcast probe and listens for d.
func (p *probing) round(ctx context.Context, d time.Duration) error {
	if err := p.send(ctx, nil); err != nil {
		return err
	}
	if err := p.listen(ctx, d); err != nil || p.over() {
		return err
	}
	l, err := p.seg.wire.Link()
	if err == nil && !sameMAC(l.MAC, p.src) {
		err = fmt.Errorf("the MAC of the parent changed from %s to %s meanwhile, so nothing is known of answers to the old one; give a bridge a MAC that stays when its ports change: ip link set dev BRIDGE address MAC", p.src, l.MAC)
	}
	if err != nil {
		return err
	}
	p.unanswered++
	return nil
}

// gap returns the interval with jitter, so that several nodes do not probe at the same times.
func (p *probing) gap() time.Duration {
	return p.params.Interval + time.Duration(p.seg.set.jitter()*float64(p.params.Interval)/8)
}

// sendTo sends one unicast probe to mac, unless mac is empty or this parent's own, as with ipvlan.
func (p *probing) sendTo(ctx context.Context, mac net.HardwareAddr) error {
	if len(mac) == 0 || sameMAC(mac, p.src) {
		return nil
	}
	return p.send(ctx, mac)
}

func (p *probing) send(ctx context.Context, dst net.HardwareAddr) error {
	frame, err := frames.Probe(p.src, dst, p.addr)
	if p.question {
		frame, err = frames.Question(p.src, p.addr)
	}
	if err != nil {
		return err
	}
	return p.seg.sendProbe(ctx, frame)
}

// sendProbe sends a probe once it is its turn.
func (s *Segment) sendProbe(ctx context.Context, frame []byte) error {
	if err := s.pacer.Do(ctx, func() error { return s.wire.SendProbe(frame) }); err != nil {
		return fmt.Errorf("send probe: %w", err)
	}
	return nil
}

// listen handles the kernel's events for d, or until over. At the end it also reads the kernel's
// state, because events may be lost.
func (p *probing) listen(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := p.seg.set.clock.NewTimer(d)
	defer t.Stop()
	for !p.over() {
		select {
		case ev := <-p.watch.events:
			p.take(ev)
		case <-t.C():
			return p.readState()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// over reports whether listening ends: the result is known, or a frame for which it waits has come.
func (p *probing) over() bool {
	return p.answer.Conflict || p.acked && !p.passAck || p.toSuspect && p.answers.suspect
}

func (p *probing) take(ev bpf.Event) {
	switch ev.Type {
	case bpf.EventHit:
		p.hit(newHit(ev.MAC, ev.Kind, ev.At, ev.Where))
	case bpf.EventAck:
		if ev.At >= p.answers.start {
			p.ack(ev.Token, ev.MAC)
		}
	}
}

func (p *probing) readState() error {
	st, ok, err := p.seg.set.kernel.Leases.State(p.watch.key)
	if err != nil {
		return fmt.Errorf("read state of %s: %w", p.watch.key, err)
	}
	if !ok {
		return nil
	}
	p.hit(newHit(st.HitMAC, st.HitKind, st.LastHit, st.HitWhere))
	p.hit(newHit(st.ProbeMAC, st.ProbeKind, st.LastProbe, st.ProbeWhere))
	// After a restore from a backup, a token may be less than a token that was acknowledged before
	// the restore. The state does not show acks of such tokens, only events do.
	if p.ackedBefore <= p.token {
		p.ack(st.AckedToken, st.AckMAC)
	}
	return nil
}

func (p *probing) hit(h hit) {
	if p.answers.take(h) && !p.answer.Conflict {
		p.answer = Answer{Conflict: true, MAC: h.mac.hardware(), Kind: h.kind, Source: SourceProbe}
	}
}

// heedOwn takes the node itself for a speaker of its own addresses: a bridge hears no probe that leaves by its port.
func (p *probing) heedOwn() error {
	own, err := p.seg.wire.Has(p.addr)
	if own {
		p.hit(newHit(p.src, bpf.KindARP, p.now(), bpf.WhereObserverEgress))
	}
	return err
}

func (p *probing) ack(token uint64, mac net.HardwareAddr) {
	if p.asked && token >= p.token && !p.acked {
		p.acked, p.ackMAC = true, mac
	}
}

func (p *probing) now() time.Duration { return p.seg.set.kernel.Now() }
