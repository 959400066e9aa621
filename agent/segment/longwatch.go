package segment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

const (
	// lookInterval is how often a LongWatch looks for what no event has told.
	lookInterval = 5 * time.Second
	// askingWindow is within which two probes of one host count as its wish to
	// use the address. Devices that track hosts probe once in a longer time.
	askingWindow = 10 * time.Second
)

// Doubt is why an address may not be taken for free any more, although nobody
// holds it. It is a metric label.
type Doubt string

// The doubts.
const (
	// DoubtNone: it was proven, and nobody has spoken for it since.
	DoubtNone Doubt = ""
	// DoubtUnproven: Prove has not succeeded since the last doubt.
	DoubtUnproven Doubt = "Unproven"
	// DoubtSpoken: somebody speaks for it.
	DoubtSpoken Doubt = "Conflict"
	// DoubtCarrier: the parent has no carrier, or had none meanwhile.
	DoubtCarrier Doubt = "Carrier"
	// DoubtObserver: the observer is not attached, or was not meanwhile.
	DoubtObserver Doubt = "Observer"
	// DoubtHeld: a pod's interface of this node holds it, so that its own frames are not reported.
	DoubtHeld Doubt = "Held"
)

// LongWatch proves that nobody uses an address and watches it from then on, for
// as long as nobody is given it. Safe for concurrent use, but for Prove and
// Wait, of which one runs at a time.
type LongWatch struct {
	seg    *Segment
	addr   netip.Addr
	params ProbeParams
	watch  *watch // nil in mode Off, which listens to nobody

	mu      sync.Mutex
	answers *answers
	answer  Answer
	proving bool
	proven  bool
	since   continuity
}

// WatchLong begins to watch an address. The caller ends the watch.
func (s *Segment) WatchLong(addr netip.Addr, params ProbeParams) (*LongWatch, error) {
	w := &LongWatch{seg: s, addr: addr, params: params}
	if !speaks(params.Mode) {
		return w, nil
	}
	w.answers = newAnswers(params, s.set.kernel.Now())
	var err error
	if w.watch, err = s.set.watches.start(s.key(addr)); err != nil {
		return nil, fmt.Errorf("watch %s on %s: %w", addr, s.name, err)
	}
	return w, nil
}

// End stops watching. An address that was given to a pod meanwhile is the pod's.
func (w *LongWatch) End() error {
	if w.watch == nil {
		return nil
	}
	return w.watch.end()
}

// Prove probes the address at leisure, as RFC 5227 section 2.1.1 and RFC 4862
// section 5.4 do, and returns the doubt that is left. It forgets what was heard
// before.
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
	err = w.probe(ctx, t)
	if err != nil && !errors.Is(err, errDoubtful) {
		return DoubtUnproven, Answer{}, w.wrap(err)
	}
	w.mu.Lock()
	w.proven = true
	w.mu.Unlock()
	doubt, answer, err := w.Doubt()
	w.mu.Lock()
	w.proving = false
	w.mu.Unlock()
	return doubt, answer, err
}

// errDoubtful ends a probing that has become pointless.
var errDoubtful = errors.New("the address is in doubt")

// begin notes what the proof will stand on. Probes into a link without carrier,
// or that nobody listens for, would prove nothing when it comes back.
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
	w.proving, w.proven, w.since, w.answer = true, false, since, Answer{}
	w.answers = newAnswers(w.params, w.seg.set.kernel.Now())
	return DoubtNone, nil
}

// probe sends the probes and listens in between.
func (w *LongWatch) probe(ctx context.Context, t Timing) error {
	jitter := w.seg.set.jitter
	if err := w.listen(ctx, between(0, t.Wait, jitter())); err != nil {
		return err
	}
	for i := range t.Num {
		if err := w.send(ctx); err != nil {
			return err
		}
		gap := t.Listen
		if i < t.Num-1 {
			gap = between(t.Min, t.Max, jitter())
		}
		if err := w.listen(ctx, gap); err != nil {
			return err
		}
	}
	return nil
}

func (w *LongWatch) send(ctx context.Context) error {
	l, err := w.seg.wire.link()
	if err != nil {
		return err
	}
	frame, err := probeFrame(l.mac, nil, w.addr)
	if err != nil {
		return err
	}
	if err := w.seg.pacer.do(ctx, func() error { return w.seg.wire.sendProbe(frame) }); err != nil {
		return fmt.Errorf("send probe: %w", err)
	}
	return nil
}

// listen takes what the kernel reports for d; errDoubtful ends it early.
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

// drain takes the events that wait; the state keeps only the last frame.
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

// hear takes an event, and tells whether somebody speaks for the address.
func (w *LongWatch) hear(ev bpf.Event) bool {
	return ev.Type == bpf.EventHit && w.take(newHit(ev.MAC, ev.Kind, ev.At))
}

// Wait returns the first doubt about an address that was proven.
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

// Doubt reads from the kernel whether the address is as proven as it was.
func (w *LongWatch) Doubt() (Doubt, Answer, error) {
	if w.watch == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.proven {
			return DoubtUnproven, Answer{}, nil
		}
		return DoubtNone, Answer{}, nil
	}
	present, installed, err := w.seg.set.kernel.Lease(w.watch.key)
	if err != nil {
		return DoubtUnproven, Answer{}, w.wrap(err)
	}
	now, err := w.seg.continuity()
	if err != nil {
		return DoubtUnproven, Answer{}, w.wrap(err)
	}
	st, _, err := w.seg.set.kernel.State(w.watch.key)
	if err != nil {
		return DoubtUnproven, Answer{}, w.wrap(err)
	}
	w.drain()
	w.take(newHit(st.HitMAC, st.HitKind, st.LastHit))
	w.take(newHit(st.ProbeMAC, st.ProbeKind, st.LastProbe))

	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.answer.Conflict:
		w.proven = false
		return DoubtSpoken, w.answer, nil
	case !w.proven:
		return DoubtUnproven, Answer{}, nil
	case !now.observed(), now.observer != w.since.observer, !installed:
		w.proven = false
		return DoubtObserver, Answer{}, nil
	case !now.carrier, now.carrierLosses != w.since.carrierLosses:
		w.proven = false
		return DoubtCarrier, Answer{}, nil
	case present.Slot != 0:
		w.proven = false
		return DoubtHeld, Answer{MAC: present.MAC}, nil
	}
	return DoubtNone, Answer{}, nil
}

// take notes who speaks, and tells whether somebody does.
func (w *LongWatch) take(h hit) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.kind.Tentative() && h.at > w.answers.start+askingWindow {
		// What was asked long ago is forgotten, so that the watch does not grow.
		w.answers = newAnswers(w.params, h.at)
	}
	if w.answers.take(h) && !w.answer.Conflict {
		w.answer = Answer{Conflict: true, MAC: h.mac.hardware(), Kind: h.kind, At: h.at, Source: SourceObserver}
		if w.proving {
			w.answer.Source = SourceProbe
		}
	}
	return w.answer.Conflict
}

func (w *LongWatch) wrap(err error) error {
	return fmt.Errorf("watch %s on %s: %w", w.addr, w.seg.name, err)
}
