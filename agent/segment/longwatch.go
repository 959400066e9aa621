// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/frames"
)

const (
	// lookInterval is how often a LongWatch reads the kernel's state, since events may be lost.
	lookInterval = 5 * time.Second
	// askingWindow is the time within which two probes of one host count as a conflict. Devices
	// that track hosts probe less often.
	askingWindow = 10 * time.Second
)

// Doubt is the reason why an address without holder does not count as free. It is a metric label.
type Doubt string

// The doubts.
const (
	// DoubtNone: it was proven free, and no host has used it since.
	DoubtNone Doubt = ""
	// DoubtUnproven: Prove has not succeeded since the last doubt.
	DoubtUnproven Doubt = "Unproven"
	// DoubtSpoken: another host uses it.
	DoubtSpoken Doubt = "Conflict"
	// DoubtCarrier: the parent has no carrier, or lost it since the proof.
	DoubtCarrier Doubt = "Carrier"
	// DoubtObserver: the observer is not attached, or was detached since the proof.
	DoubtObserver Doubt = "Observer"
	// DoubtAsked: another host has probed it once.
	DoubtAsked Doubt = "Asked"
	// DoubtHeld: a pod of this node holds it, and the kernel does not report that pod's frames.
	DoubtHeld Doubt = "Held"
)

// LongWatch proves that no host uses an address and watches it until a pod gets it. Safe for
// concurrent use, except that only one Prove or Wait may run at a time.
type LongWatch struct {
	seg    *Segment
	addr   netip.Addr
	params ProbeParams
	watch  *watch // nil in mode Off, which does not listen

	mu      sync.Mutex
	answers *answers
	answer  Answer
	proving bool
	proven  bool
	// probed is the boot time of the last probe. asked: another host has probed the address since.
	probed time.Duration
	asked  bool
	since  continuity
}

// WatchLong starts to watch an address. The caller must call End.
func (s *Segment) WatchLong(addr netip.Addr, params ProbeParams) (*LongWatch, error) {
	w := &LongWatch{seg: s, addr: addr, params: params}
	if !speaks(params.Mode) {
		return w, nil
	}
	w.answers = newAnswers(params, s.set.kernel.Now())
	var err error
	if w.watch, err = s.startWatch(addr); err != nil {
		return nil, err
	}
	return w, nil
}

// End stops the watch. If a pod has got the address meanwhile, its lease stays in the kernel.
func (w *LongWatch) End() error {
	if w.watch == nil {
		return nil
	}
	return w.watch.end()
}

// Prove probes the address with the times of t and returns the remaining doubt. For DoubtSpoken it
// also returns the answer. Earlier frames do not count. TimingFor returns the times of RFC
// 5227 section 2.1.1 and RFC 4862 section 5.4.
func (w *LongWatch) Prove(ctx context.Context, t Timing) (Doubt, Answer, error) {
	if w.watch == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.proven = true
		return DoubtNone, Answer{}, nil
	}
	doubt, err := w.begin()
	if err != nil {
		return DoubtUnproven, Answer{}, w.wrap(err)
	}
	if doubt != DoubtNone {
		return doubt, Answer{}, nil
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.proving = false
	}()
	err = w.probe(ctx, t)
	if err != nil && !errors.Is(err, errDoubtful) {
		return DoubtUnproven, Answer{}, w.wrap(err)
	}
	w.mu.Lock()
	w.proven = true
	w.mu.Unlock()
	return w.Doubt()
}

// errDoubtful ends probing early.
var errDoubtful = errors.New("the address is in doubt")

// begin records the continuity on which the proof relies. It returns a doubt if the link has no
// carrier or no observer: probes would prove nothing.
func (w *LongWatch) begin() (Doubt, error) {
	since, err := w.seg.continuity()
	switch {
	case err != nil:
		return DoubtUnproven, err
	case !since.observed():
		return DoubtObserver, nil
	case !since.carrier:
		return DoubtCarrier, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proving, w.proven, w.asked, w.since, w.answer = true, false, false, since, Answer{}
	w.answers = newAnswers(w.params, w.seg.set.kernel.Now())
	return DoubtNone, nil
}

// probe sends the probes and listens in between.
func (w *LongWatch) probe(ctx context.Context, t Timing) error {
	jitter := w.seg.set.jitter
	if err := w.listen(ctx, Between(0, t.Wait, jitter())); err != nil {
		return err
	}
	for i := range t.Num {
		if err := w.send(ctx); err != nil {
			return err
		}
		gap := t.Listen
		if i < t.Num-1 {
			gap = Between(t.Min, t.Max, jitter())
		}
		if err := w.listen(ctx, gap); err != nil {
			return err
		}
	}
	return nil
}

func (w *LongWatch) send(ctx context.Context) error {
	l, err := w.seg.wire.Link()
	if err != nil {
		return err
	}
	frame, err := frames.Probe(l.MAC, nil, w.addr)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.probed = w.seg.set.kernel.Now()
	w.mu.Unlock()
	return w.seg.sendProbe(ctx, frame)
}

// listen handles the kernel's events for d. It returns errDoubtful at the first doubt.
func (w *LongWatch) listen(ctx context.Context, d time.Duration) error {
	t := w.seg.set.clock.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case ev := <-w.watch.events:
			if w.hear(ev) {
				return errDoubtful
			}
		case <-t.C():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drain handles the pending events, since the state keeps only the last frame.
func (w *LongWatch) drain() {
	for {
		select {
		case ev := <-w.watch.events:
			w.hear(ev)
		default:
			return
		}
	}
}

// hear handles an event and reports whether the address is in doubt.
func (w *LongWatch) hear(ev bpf.Event) bool {
	return ev.Type == bpf.EventHit && w.take(newHit(ev.MAC, ev.Kind, ev.At, ev.Where))
}

// Wait waits for the first doubt about a proven address and returns it.
func (w *LongWatch) Wait(ctx context.Context) (Doubt, Answer, error) {
	for {
		doubt, answer, err := w.Doubt()
		if err != nil || doubt != DoubtNone {
			return doubt, answer, err
		}
		if w.watch == nil {
			<-ctx.Done()
			return DoubtNone, Answer{}, context.Cause(ctx)
		}
		if err := w.listen(ctx, lookInterval); err != nil && !errors.Is(err, errDoubtful) {
			return DoubtNone, Answer{}, w.wrap(err)
		}
	}
}

// Doubt reads from the kernel whether the proof still holds, and returns the doubt if it does not.
// A doubt voids the proof: Prove must run again.
func (w *LongWatch) Doubt() (Doubt, Answer, error) {
	if w.watch == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.proven {
			return DoubtUnproven, Answer{}, nil
		}
		return DoubtNone, Answer{}, nil
	}
	present, installed, err := w.seg.set.kernel.Leases.Lease(w.watch.key)
	if err != nil {
		return DoubtUnproven, Answer{}, w.wrap(err)
	}
	now, err := w.seg.continuity()
	if err != nil {
		return DoubtUnproven, Answer{}, w.wrap(err)
	}
	st, _, err := w.seg.set.kernel.Leases.State(w.watch.key)
	if err != nil {
		return DoubtUnproven, Answer{}, w.wrap(err)
	}
	own, err := w.seg.wire.Has(w.addr)
	if err != nil {
		return DoubtUnproven, Answer{}, w.wrap(err)
	}
	w.drain()
	if own { // the parent may get the address, and say nothing
		w.take(newHit(now.mac, bpf.KindARP, w.seg.set.kernel.Now(), bpf.WhereObserverEgress))
	}
	w.take(newHit(st.HitMAC, st.HitKind, st.LastHit, st.HitWhere))
	w.take(newHit(st.ProbeMAC, st.ProbeKind, st.LastProbe, st.ProbeWhere))

	w.mu.Lock()
	defer w.mu.Unlock()
	doubt, answer := w.judge(now, present, installed)
	w.proven = doubt == DoubtNone
	return doubt, answer, nil
}

// judge returns the first doubt. It needs mu.
func (w *LongWatch) judge(now continuity, present bpf.Lease, installed bool) (Doubt, Answer) {
	switch {
	case w.answer.Conflict:
		return DoubtSpoken, w.answer
	case !w.proven:
		return DoubtUnproven, Answer{}
	case w.asked:
		return DoubtAsked, Answer{}
	case !now.observed(), now.observer != w.since.observer, !installed:
		return DoubtObserver, Answer{}
	case !now.carrier, now.carrierLosses != w.since.carrierLosses:
		return DoubtCarrier, Answer{}
	case present.Slot != 0:
		return DoubtHeld, Answer{MAC: present.MAC}
	}
	return DoubtNone, Answer{}
}

// take records a hit and reports whether the address is in doubt.
//
// One neighbour solicitation is enough for a doubt: it may be the whole DAD (RFC 4862 section 5.1,
// DupAddrDetectTransmits), and a switch with MLD snooping may forward no other frame of the host.
// One ARP probe is not enough, because hosts send several.
func (w *LongWatch) take(h hit) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.kind == bpf.KindDAD && w.proven && h.at > w.probed && !contains(w.params.Ignore, h.mac.hardware()) {
		w.asked = true
	}
	if h.kind.Tentative() && h.at > w.answers.start+askingWindow {
		// Forget old probes, so that the watch does not grow.
		w.answers = newAnswers(w.params, h.at)
	}
	if w.answers.take(h) && !w.answer.Conflict {
		w.answer = Answer{Conflict: true, MAC: h.mac.hardware(), Kind: h.kind, Source: SourceObserver}
		if w.proving {
			w.answer.Source = SourceProbe
		}
	}
	return w.answer.Conflict || w.asked
}

func (w *LongWatch) wrap(err error) error {
	return fmt.Errorf("watch %s on %s: %w", w.addr, w.seg.name, err)
}
