// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
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
