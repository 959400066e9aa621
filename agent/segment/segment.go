// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
)

// Segment is one L2 segment as this node reaches it through a parent. Safe for concurrent use.
type Segment struct {
	set      *Segments
	parent   int
	name     string
	wire     parentWire
	pacer    *Pacer
	canaries canaries
}

// Parent returns the ifindex of the parent, which is the segment of kernel keys.
func (s *Segment) Parent() int { return s.parent }

// Name returns the parent's name at the time of Open.
func (s *Segment) Name() string { return s.name }

func (s *Segment) key(addr netip.Addr) bpf.Key { return bpf.Key{Segment: uint32(s.parent), Addr: addr} }

func (s *Segments) keys() []claim.Key { return *s.claimKeys.Load() }

// Observe attaches the observer again if it was removed or is no longer the first program. The
// parent must be in the calling thread's network namespace.
func (s *Segment) Observe() error {
	if err := s.set.kernel.Observers.Attach(s.parent); err != nil {
		return fmt.Errorf("observe %s: %w", s.name, err)
	}
	return nil
}

// Hearing is the evidence that a segment hears other nodes, for metrics.
type Hearing struct {
	// Carrier and Observed: the parent has carrier, and the observer is attached.
	Carrier, Observed bool
	// Others: a valid claim or ack of another node came in within HearingWindow.
	Others bool
	// Mute: canaries were asked in the last verification that needed one, and none answered.
	Mute bool
}

// Hearing reads the current state from the kernel.
func (s *Segment) Hearing() (Hearing, error) {
	carrier, observed, err := s.hears()
	if err != nil {
		return Hearing{}, err
	}
	ago, heard, err := s.heardAgo()
	if err != nil {
		return Hearing{}, err
	}
	return Hearing{Carrier: carrier, Observed: observed, Others: heard && ago <= HearingWindow, Mute: s.canaries.mute.Load()}, nil
}

// Deaf reports whether silence proves nothing. othersShare: another node shares the segment.
func (h Hearing) Deaf(othersShare bool) bool {
	return !h.Carrier || !h.Observed || othersShare && !h.Others
}

// continuity shows whether the node has listened to a segment without a gap. If two values are
// equal, and both have carrier and an observer, no frame was missed between them.
type continuity struct {
	mac     net.HardwareAddr
	carrier bool
	// carrierLosses counts how often the parent has lost its carrier.
	carrierLosses uint32
	// observer holds the IDs of the observer's attachments, see bpf.Kernel.Observers.Links.
	observer [2]uint32
}

// observed reports whether both programs of the observer are attached.
func (c continuity) observed() bool { return c.observer[0] != 0 && c.observer[1] != 0 }

// continuity reads the current state.
func (s *Segment) continuity() (continuity, error) {
	l, err := s.wire.Link()
	if err != nil {
		return continuity{}, err
	}
	carrier, losses, err := s.wire.Carrier()
	if err != nil {
		return continuity{}, fmt.Errorf("read the carrier of %s: %w", s.name, err)
	}
	observer, err := s.set.kernel.Observers.Links(s.parent)
	if err != nil {
		return continuity{}, err
	}
	return continuity{mac: l.MAC, carrier: carrier, carrierLosses: losses, observer: observer}, nil
}
