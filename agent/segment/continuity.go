// SPDX-License-Identifier: Apache-2.0

package segment

import "fmt"

// continuity shows whether the node has listened to a segment without a gap. If two values are
// equal, and both have carrier and an observer, no frame was missed between them.
type continuity struct {
	carrier bool
	// carrierLosses counts how often the parent has lost its carrier.
	carrierLosses uint32
	// observer holds the IDs of the observer's attachments, see bpf.Kernel.ObserverLinks.
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
	losses, err := s.wire.CarrierLosses()
	if err != nil {
		return continuity{}, fmt.Errorf("read the carrier losses of %s: %w", s.name, err)
	}
	observer, err := s.set.kernel.ObserverLinks(s.parent)
	if err != nil {
		return continuity{}, err
	}
	return continuity{carrier: l.Carrier, carrierLosses: losses, observer: observer}, nil
}
