package segment

import (
	"bytes"
	"net"
	"slices"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

// answers decides which of the frames heard during a probe are a conflict. It
// has no effects and no clock; all times are boot times.
type answers struct {
	ignore   []net.HardwareAddr
	previous net.HardwareAddr // empty: not known
	// start of the probe; older hits are history.
	start time.Duration
	// settled is when the late frames of the previous holder are through.
	settled time.Duration
	// lastTwo is when the last but one round was sent; 0: not yet.
	lastTwo time.Duration
	// confirming is when the unicast probe to previous was sent; 0: not yet.
	confirming time.Duration
	// fenced: the previous holder is known to be fenced, its frames are late ones.
	fenced bool

	// suspect: the previous holder seems to answer in the last two rounds.
	suspect bool

	seen  map[hit]bool
	asked map[macAddr]int
}

// hit is one frame by which somebody else spoke for the address, or asked for it.
type hit struct {
	mac  macAddr
	kind bpf.Kind
	at   time.Duration
}

// macAddr is a MAC as a map key.
type macAddr [6]byte

func (m macAddr) hardware() net.HardwareAddr { return bytes.Clone(m[:]) }

func newHit(mac net.HardwareAddr, kind bpf.Kind, at time.Duration) hit {
	h := hit{kind: kind, at: at}
	copy(h.mac[:], mac)
	return h
}

func newAnswers(p ProbeParams, start time.Duration) *answers {
	return &answers{
		ignore:   p.Ignore,
		previous: p.PreviousMAC,
		start:    start,
		settled:  start + p.Settle,
		seen:     make(map[hit]bool),
		asked:    make(map[macAddr]int),
	}
}

// take notes a hit and tells whether it is a conflict. The same hit may come
// twice, as event and as state.
func (a *answers) take(h hit) bool {
	mac := h.mac.hardware()
	if h.at < a.start || contains(a.ignore, mac) || a.seen[h] {
		return false
	}
	a.seen[h] = true
	if h.kind.Tentative() {
		// Somebody else probes: a conflict too (RFC 5227 section 2.1.1, RFC 4862
		// section 5.4.3), but switches that track devices probe, once.
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

// takePrevious weighs a frame of the previous holder's MAC: late before the
// last two rounds, then perhaps a switch that answers in its place, and a
// conflict once it answered the unicast probe.
func (a *answers) takePrevious(at time.Duration) bool {
	switch {
	case a.fenced:
	case a.confirming != 0:
		return at >= a.confirming
	case a.lastTwo != 0 && at >= a.lastTwo:
		a.suspect = true
	}
	return false
}

func contains(macs []net.HardwareAddr, mac net.HardwareAddr) bool {
	return slices.ContainsFunc(macs, func(m net.HardwareAddr) bool { return bytes.Equal(m, mac) })
}

// sameMAC tells whether both are the same, known MAC.
func sameMAC(a, b net.HardwareAddr) bool { return len(a) > 0 && bytes.Equal(a, b) }
