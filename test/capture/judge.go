// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// SpokenFor returns the frames whose sender uses addr as its own.
func SpokenFor(frames []Frame, addr netip.Addr) []Frame {
	return filter(frames, func(f Frame) bool { return slices.Contains(f.Speaks, addr) })
}

// From returns the frames with that source MAC.
func From(frames []Frame, mac net.HardwareAddr) []Frame {
	return filter(frames, func(f Frame) bool { return bytes.Equal(f.Source, mac) })
}

// After returns the frames that arrived later than t.
func After(frames []Frame, t time.Time) []Frame {
	return filter(frames, func(f Frame) bool { return f.Time.After(t) })
}

// Of returns the frames of that kind.
func Of(frames []Frame, kind string) []Frame {
	return filter(frames, func(f Frame) bool { return f.Kind == kind })
}

// ToAll returns the frames that each host on the segment hears: those to a group (IEEE 802, the I/G bit).
func ToAll(frames []Frame) []Frame {
	return filter(frames, func(f Frame) bool { return len(f.Destination) > 0 && f.Destination[0]&1 == 1 })
}

// About returns the frames whose target is addr.
func About(frames []Frame, addr netip.Addr) []Frame {
	return filter(frames, func(f Frame) bool { return f.Target == addr })
}

// Speakers returns the source MACs, as text, that spoke for addr, in the order of their first frame.
func Speakers(frames []Frame, addr netip.Addr) []string {
	var macs []string
	for _, f := range SpokenFor(frames, addr) {
		if mac := f.Source.String(); !slices.Contains(macs, mac) {
			macs = append(macs, mac)
		}
	}
	return macs
}

// Flips counts how often the speaker for addr changed from one frame to the next.
func Flips(frames []Frame, addr netip.Addr) int {
	turns := slices.CompactFunc(SpokenFor(frames, addr), func(a, b Frame) bool { return bytes.Equal(a.Source, b.Source) })
	return max(0, len(turns)-1)
}

func filter(frames []Frame, keep func(Frame) bool) []Frame {
	var kept []Frame
	for _, f := range frames {
		if keep(f) {
			kept = append(kept, f)
		}
	}
	return kept
}

const (
	// InFlight is the longest time from the pod to the switch of a frame that left before the fence.
	InFlight = time.Millisecond
	// FenceLimit is the longest time of a claim from the switch to the kernel of the old holder, and of its ack
	// back. On an idle machine it takes 0.1 ms. Here two cores carry a whole cluster, and soft interrupts wait.
	FenceLimit = 50 * time.Millisecond
)

// Change is an address that passes from one holder to another.
type Change struct {
	Addr     netip.Addr
	Old, New net.HardwareAddr
	// OldPort is the switch port of the old holder's node.
	OldPort string
}

// Passage is the evidence on the underlay of a Change with a claim.
type Passage struct {
	// Claim is the first claim for the address by another node, and Ack the answer of the old holder's kernel.
	Claim, Ack Frame
	// Last is the old holder's last frame, zero if there was none.
	Last Frame
}

// PassageOf finds the first claim after since and its ack, and judges that only the new holder sends
// from the address after the ack.
func (c Change) PassageOf(frames []Frame, since time.Time) (Passage, error) {
	var p Passage
	frames = After(frames, since)
	about := About(frames, c.Addr)
	claim := slices.IndexFunc(about, func(f Frame) bool { return f.Kind == "claim" && f.Port != c.OldPort })
	if claim < 0 {
		return p, fmt.Errorf("no claim for %s was seen, but %v", c.Addr, about)
	}
	p.Claim = about[claim]
	acks := slices.DeleteFunc(Of(After(about, p.Claim.Time), "ack"), func(f Frame) bool { return f.Port != c.OldPort })
	if len(acks) == 0 {
		return p, fmt.Errorf("no ack for %s came from %s after the claim %s", c.Addr, c.OldPort, p.Claim)
	}
	p.Ack = acks[0]
	if took := p.Ack.Time.Sub(p.Claim.Time); took > FenceLimit {
		return p, fmt.Errorf("the ack for %s came %s after the claim", c.Addr, took)
	}
	if byOld := From(SpokenFor(frames, c.Addr), c.Old); len(byOld) > 0 {
		p.Last = byOld[len(byOld)-1]
	}
	return p, c.OnlyNewAfter(frames, p.Ack.Time.Add(InFlight))
}

// OnlyNewAfter returns an error if another host than the new holder used the address later than end,
// or if the new holder did not use it at all.
func (c Change) OnlyNewAfter(frames []Frame, end time.Time) error {
	spoken := SpokenFor(After(frames, end), c.Addr)
	speakers := Speakers(spoken, c.Addr)
	if len(speakers) == 1 && speakers[0] == c.New.String() {
		return nil
	}
	if late := From(spoken, c.Old); len(late) > 0 {
		return fmt.Errorf("the old holder of %s used it %d times after its fence, the first time %s late: %s",
			c.Addr, len(late), late[0].Time.Sub(end), late[0])
	}
	return fmt.Errorf("%v speak for %s, not only its new holder %s", speakers, c.Addr, c.New)
}
