package holder

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

// memWire is a segment in memory. Who answers and what a verification finds is
// the test's; what frames do is tested in agent/segment.
type memWire struct {
	kernel *memKernel

	mu sync.Mutex
	// answers are foreign speakers by address.
	answers  map[netip.Addr]net.HardwareAddr
	verdicts map[netip.Addr]segment.Verdict
	// onClaim runs between a claim and its confirmation.
	onClaim func(segment.Claim)
	// did is what was sent, in order: "probe 10.0.0.2".
	did          []string
	verification segment.Verification
	// probers is how many verifications meet another one, which only asks.
	probers int
	// observe is why the observer cannot be put back.
	observe error
}

func newMemWire(k *memKernel) *memWire {
	return &memWire{kernel: k, answers: map[netip.Addr]net.HardwareAddr{}, verdicts: map[netip.Addr]segment.Verdict{}}
}

const parentIndex = 7

func (w *memWire) note(what string, addr netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = append(w.did, what+" "+addr.String())
}

func (w *memWire) Probe(ctx context.Context, addr netip.Addr, p segment.ProbeParams) (segment.Answer, error) {
	if p.Mode == v1alpha1.ModeOff {
		return segment.Answer{}, nil
	}
	w.note("probe", addr)
	mac, answered := w.answers[addr]
	return segment.Answer{Conflict: answered, MAC: mac, Source: segment.SourceProbe}, ctx.Err()
}

func (w *memWire) ClaimAndConfirm(ctx context.Context, c segment.Claim) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.Mode != v1alpha1.ModeEnforce {
		return nil
	}
	w.note("claim", c.Addr)
	if w.onClaim != nil {
		w.onClaim(c)
	}
	if fenced, _ := w.kernel.Fenced(bpf.Key{Segment: parentIndex, Addr: c.Addr}); fenced {
		return segment.ErrFenced
	}
	return nil
}

func (w *memWire) Verify(_ context.Context, v segment.Verification) (segment.Verdict, segment.Evidence, error) {
	w.note("verify", v.Claim.Addr)
	w.verification = v
	e := segment.Evidence{Carrier: true, Observed: true, SlotDead: v.SlotDead, Asserted: v.Asserted, OthersShare: true, Unanswered: segment.MinRounds}
	if w.probers > 0 {
		w.probers--
		e.Answer = segment.Answer{Conflict: true, MAC: stranger, Kind: bpf.KindARPProbe, Source: segment.SourceProbe}
		return segment.Judge(e), e, nil
	}
	switch w.verdicts[v.Claim.Addr] {
	case segment.Fenced:
		e.Acked = true
	case segment.Silent:
		e.Heard = true
	case segment.Answered:
		e.Answer = segment.Answer{Conflict: true, MAC: stranger, Source: segment.SourceProbe}
	}
	return segment.Judge(e), e, nil
}

func (w *memWire) Observe() error { return w.observe }

func (w *memWire) Announce(a segment.Announcement) { w.note("announce", a.Addr) }

func (w *memWire) took(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.did, what)
}

// times counts how often something was sent.
func (w *memWire) times(what string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, did := range w.did {
		if did == what {
			n++
		}
	}
	return n
}

var stranger = net.HardwareAddr{2, 0xbd, 0, 0, 0, 1}

// awayLeases cannot list: lists carry no name to fail by.
type awayLeases struct{ Leases }

func (awayLeases) OfPod(context.Context, string, string) ([]v1alpha1.IPLease, error) {
	return nil, &netError{}
}

// slowGet does something after a lease was read.
type slowGet struct {
	Leases
	after func()
}

func (s slowGet) Get(ctx context.Context, name string) (*v1alpha1.IPLease, error) {
	l, err := s.Leases.Get(ctx, name)
	s.after()
	return l, err
}

// netError is a connection that broke after the request was sent.
type netError struct{}

func (*netError) Error() string { return "read: connection reset by peer" }
func (*netError) Unwrap() error { return syscall.ECONNRESET }
