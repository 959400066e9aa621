package segment

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/bpf"
)

// Segment is one L2 segment as this node reaches it through a parent. Safe for
// concurrent use.
type Segment struct {
	set    *Segments
	parent int
	name   string
	wire   wire
	pacer  *pacer
}

// Parent is the ifindex of the parent, and the segment number of kernel keys.
func (s *Segment) Parent() int { return s.parent }

// Name of the parent when the segment was opened.
func (s *Segment) Name() string { return s.name }

func (s *Segment) key(addr netip.Addr) bpf.Key {
	return bpf.Key{Segment: uint32(s.parent), Addr: addr}
}

func (s *Segments) keys() []claim.Key { return *s.claimKeys.Load() }

// Observe puts the observer back where it had gone, or where others had got
// ahead of it. The parent is one of the calling thread's network namespace.
func (s *Segment) Observe() error {
	if err := s.set.kernel.AttachObserver(s.parent); err != nil {
		return fmt.Errorf("observe %s: %w", s.name, err)
	}
	return nil
}

// Hearing is what a segment can be trusted to hear, for metrics.
type Hearing struct {
	// Carrier and Observed: the parent has carrier, and the observer is attached.
	Carrier, Observed bool
	// Others: a valid claim or ack of another node came in within HearingWindow.
	Others bool
}

// Hearing reads the present state from the kernel.
func (s *Segment) Hearing() (Hearing, error) {
	carrier, observed, err := s.hears()
	if err != nil {
		return Hearing{}, err
	}
	ago, heard, err := s.heardAgo()
	if err != nil {
		return Hearing{}, err
	}
	return Hearing{Carrier: carrier, Observed: observed, Others: heard && ago <= HearingWindow}, nil
}

// Deaf tells whether silence on the segment proves nothing, given that another
// node shares it or not.
func (h Hearing) Deaf(othersShare bool) bool {
	return !h.Carrier || !h.Observed || othersShare && !h.Others
}
