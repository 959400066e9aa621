// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// Wire is a segment in memory. A test sets the answers to probes and the verdicts of
// verifications. The tests of agent/segment cover real frames.
type Wire struct {
	kernel *Kernel

	mu sync.Mutex
	// Answers are the MACs of foreign speakers, by address.
	Answers  map[netip.Addr]net.HardwareAddr
	Verdicts map[netip.Addr]segment.Verdict
	// OnClaim runs between a claim and its confirmation.
	OnClaim func(segment.Claim)
	// OnVerify runs before the verdict of a verification.
	OnVerify     func(segment.Verification)
	did          []string
	Verification segment.Verification
	// Probers is the number of verifications that meet another verifier, which only sends probes.
	Probers int
	// Silent are gateways that do not answer.
	Silent map[netip.Addr]bool
	// NoKey: there is no claim key.
	NoKey bool
	// ObserveFails is the error of Observe.
	ObserveFails error
}

func NewWire(k *Kernel) *Wire {
	return &Wire{kernel: k, Answers: map[netip.Addr]net.HardwareAddr{}, Verdicts: map[netip.Addr]segment.Verdict{}}
}

const ParentIndex = 7

func (w *Wire) note(what string, addr netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = append(w.did, what+" "+addr.String())
}

func (w *Wire) Probe(ctx context.Context, addr netip.Addr, p segment.ProbeParams) (segment.Answer, error) {
	if p.Mode == v1alpha1.ModeOff {
		return segment.Answer{}, nil
	}
	w.note("probe", addr)
	mac, answered := w.Answers[addr]
	return segment.Answer{Conflict: answered, MAC: mac, Source: segment.SourceProbe}, ctx.Err()
}

// Ask gets an answer from every host that is not Silent.
func (w *Wire) Ask(ctx context.Context, addr netip.Addr) (segment.Reply, error) {
	w.note("ask", addr)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Silent[addr] {
		return segment.Reply{Hearing: segment.Hearing{Carrier: true, Observed: true}}, ctx.Err()
	}
	return segment.Reply{Answered: true, MAC: Stranger}, ctx.Err()
}

func (w *Wire) ClaimAndConfirm(ctx context.Context, c segment.Claim) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.Mode != v1alpha1.ModeEnforce {
		return nil
	}
	if w.NoKey {
		return segment.ErrNoKey
	}
	w.note("claim", c.Addr)
	if w.OnClaim != nil {
		w.OnClaim(c)
	}
	if fenced, _ := w.kernel.Fenced(bpf.Key{Segment: ParentIndex, Addr: c.Addr}); fenced {
		return segment.ErrFenced
	}
	return nil
}

func (w *Wire) Verify(_ context.Context, v segment.Verification) (segment.Verdict, segment.Evidence, error) {
	w.note("verify", v.Claim.Addr)
	if w.OnVerify != nil {
		w.OnVerify(v)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Verification = v
	e := v.Evidence()
	e.Carrier, e.Observed, e.Unanswered = true, true, segment.MinRounds
	if w.Probers > 0 {
		w.Probers--
		e.Answer = segment.Answer{Conflict: true, MAC: Stranger, Kind: bpf.KindARPProbe, Source: segment.SourceProbe}
		return segment.Judge(e), e, nil
	}
	switch w.Verdicts[v.Claim.Addr] {
	case segment.Fenced:
		e.Acked = true
	case segment.Silent:
		e.Heard, e.Asked, e.Canary = true, 1, netip.MustParseAddr("192.0.2.1")
	case segment.Answered:
		e.Answer = segment.Answer{Conflict: true, MAC: Stranger, Source: segment.SourceProbe}
	}
	return segment.Judge(e), e, nil
}

func (w *Wire) Observe() error { return w.ObserveFails }

func (w *Wire) Announce(a segment.Announcement) { w.note("announce", a.Addr) }

// Did are the frames and actions so far, in order, such as "probe 10.0.0.2".
func (w *Wire) Did() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.did)
}

func (w *Wire) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = nil
}

func (w *Wire) Took(what string) bool { return slices.Contains(w.Did(), what) }

// Times counts how often something was sent.
func (w *Wire) Times(what string) (n int) {
	for _, did := range w.Did() {
		if did == what {
			n++
		}
	}
	return n
}

var Stranger = net.HardwareAddr{2, 0xbd, 0, 0, 0, 1}

// NetError is the error of a connection that broke after the request was sent.
type NetError struct{}

func (*NetError) Error() string { return "read: connection reset by peer" }
func (*NetError) Unwrap() error { return syscall.ECONNRESET }
