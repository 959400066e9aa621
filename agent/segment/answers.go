// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"net"
	"slices"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

// answers decides which frames heard during a probe are a conflict. All times are boot times.
type answers struct {
	ignore   []net.HardwareAddr
	previous net.HardwareAddr // empty: not known
	// start of the probe; older hits do not count.
	start time.Duration
	// settled is the time after which no more late frames of the previous holder are expected.
	settled time.Duration
	// lastTwo is the time at which the first of the last two rounds was sent; 0: not yet.
	lastTwo time.Duration
	// confirming is the time at which the unicast probe to previous was sent; 0: not yet.
	confirming time.Duration
	// fenced: the previous holder is known to be fenced, so its frames are late frames.
	fenced bool
	// asking: Ask wants an answer. The probes of other hosts are not answers.
	asking bool
	// replying: only a reply to a probe counts that comes in by the parent.
	replying bool
	// suspect: the previous holder's MAC has answered in the last two rounds, or since the fence.
	suspect bool

	seen  map[hit]bool
	asked map[macAddr]int
}

// hit is one frame by which a foreign MAC used or probed the address.
type hit struct {
	mac   macAddr
	kind  bpf.Kind
	at    time.Duration
	where bpf.Where
}

// macAddr is a MAC as a map key.
type macAddr [6]byte

func (m macAddr) hardware() net.HardwareAddr { return bytes.Clone(m[:]) }

func newHit(mac net.HardwareAddr, kind bpf.Kind, at time.Duration, where bpf.Where) hit {
	h := hit{kind: kind, at: at, where: where}
	copy(h.mac[:], mac)
	return h
}

func newAnswers(p ProbeParams, start time.Duration) *answers {
	return &answers{
		ignore: p.Ignore, previous: p.PreviousMAC, start: start, settled: start + p.Settle,
		seen: make(map[hit]bool), asked: make(map[macAddr]int),
	}
}

// take records a hit and reports whether it is a conflict. It counts a hit once, although the hit
// may come both as an event and as state.
func (a *answers) take(h hit) bool {
	mac := h.mac.hardware()
	if h.at < a.start || contains(a.ignore, mac) || a.seen[h] {
		return false
	}
	a.seen[h] = true
	if a.replying {
		return h.kind.Answers() && h.where == bpf.WhereObserverIngress
	}
	if a.asking {
		return !h.kind.Tentative()
	}
	if h.kind.Tentative() {
		// A foreign probe is a conflict too (RFC 5227 section 2.1.1, RFC 4862 section 5.4.3). The
		// first probe does not count, because switches that track devices send one probe.
		a.asked[h.mac]++
		return a.asked[h.mac] >= 2
	}
	if len(a.previous) == 0 {
		return h.at >= a.settled
	}
	if !bytes.Equal(a.previous, mac) {
		return true
	}
	return a.takePrevious(h.at)
}

// fence records that the previous holder is fenced. Further frames of its MAC are late frames, or
// frames of another host with this MAC.
func (a *answers) fence() { a.fenced, a.suspect, a.confirming = true, false, 0 }

// takePrevious reports whether a frame of the previous holder's MAC is a conflict. Before the last
// two rounds it is a late frame. In the last two rounds a switch may have answered for that MAC, so
// the frame is only suspect, as after the fence. An answer to the unicast probe is a conflict.
func (a *answers) takePrevious(at time.Duration) bool {
	switch {
	case a.confirming != 0:
		return at >= a.confirming
	case a.fenced, a.lastTwo != 0 && at >= a.lastTwo:
		a.suspect = true
	}
	return false
}

func contains(macs []net.HardwareAddr, mac net.HardwareAddr) bool {
	return slices.ContainsFunc(macs, func(m net.HardwareAddr) bool { return bytes.Equal(m, mac) })
}

// sameMAC reports whether a and b are the same, non-empty MAC.
func sameMAC(a, b net.HardwareAddr) bool { return len(a) > 0 && bytes.Equal(a, b) }
