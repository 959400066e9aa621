// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// inFlight is the longest time from the pod to the switch of a frame that left before the fence.
	inFlight = time.Millisecond
	// fenceLimit is the longest time of a claim from the switch to the kernel of the old holder, and
	// of its ack back. On an idle machine it takes 0.1 ms. Here two cores carry a whole cluster, and
	// soft interrupts wait.
	fenceLimit = 50 * time.Millisecond
)

// change is an address that passes from one holder to another.
type change struct {
	addr     netip.Addr
	old, new net.HardwareAddr
	// oldPort is the switch port of the old holder's node.
	oldPort string
}

// passage is the evidence on the underlay of a change with a claim.
type passage struct {
	// claim is the first claim for the address by another node, and ack the
	// answer of the old holder's kernel.
	claim, ack capture.Frame
	// last is the old holder's last frame, zero if there was none.
	last capture.Frame
}

// lastFrame returns the time of the old holder's last frame, relative to the claim.
func (p passage) lastFrame() string {
	after := p.last.Time.Sub(p.claim.Time)
	if after > 0 {
		return fmt.Sprintf("%s after the claim", round(after))
	}
	return fmt.Sprintf("%s before the claim", round(-after))
}

// passageOf finds the first claim after since and its ack, and judges that only the new holder sends
// from the address after the ack.
func (c change) passageOf(frames []capture.Frame, since time.Time) (passage, error) {
	var p passage
	frames = capture.After(frames, since)
	about := capture.About(frames, c.addr)
	var err error
	if p.claim, err = c.firstClaim(frames); err != nil {
		return p, err
	}
	acks := slices.DeleteFunc(capture.Of(capture.After(about, p.claim.Time), "ack"), func(f capture.Frame) bool { return f.Port != c.oldPort })
	if len(acks) == 0 {
		return p, fmt.Errorf("no ack for %s came from %s after the claim %s", c.addr, c.oldPort, p.claim)
	}
	p.ack = acks[0]
	if took := p.ack.Time.Sub(p.claim.Time); took > fenceLimit {
		return p, fmt.Errorf("the ack for %s came %s after the claim", c.addr, took)
	}
	byOld := capture.From(capture.SpokenFor(frames, c.addr), c.old)
	if len(byOld) > 0 {
		p.last = byOld[len(byOld)-1]
	}
	end := p.ack.Time.Add(inFlight)
	return p, c.onlyNewAfter(frames, end)
}

// firstClaim returns the first claim for the address by another node than that of the old holder.
func (c change) firstClaim(frames []capture.Frame) (capture.Frame, error) {
	about := capture.About(frames, c.addr)
	for _, f := range capture.Of(about, "claim") {
		if f.Port != c.oldPort {
			return f, nil
		}
	}
	return capture.Frame{}, fmt.Errorf("no claim for %s was seen, but %v", c.addr, about)
}

// onlyNewAfter returns an error if another host than the new holder used the address later than end,
// or if the new holder did not use it at all.
func (c change) onlyNewAfter(frames []capture.Frame, end time.Time) error {
	spoken := capture.SpokenFor(capture.After(frames, end), c.addr)
	speakers := capture.Speakers(spoken, c.addr)
	if len(speakers) == 1 && speakers[0] == c.new.String() {
		return nil
	}
	if late := capture.From(spoken, c.old); len(late) > 0 {
		return fmt.Errorf("the old holder of %s used it %d times after its fence, the first time %s late: %s",
			c.addr, len(late), late[0].Time.Sub(end), late[0])
	}
	return fmt.Errorf("%v speak for %s, not only its new holder %s", speakers, c.addr, c.new)
}

// onlyAnswersOf judges the connections that began after end. It returns an error if another pod
// answered one of them, or if a connection failed after the pod had answered an earlier one.
func onlyAnswersOf(pod string, answers []answer, end time.Time) error {
	heard := false
	for _, a := range answers {
		switch {
		case a.begun.Before(end):
		case a.pod == pod:
			heard = true
		case a.pod != "":
			return fmt.Errorf("a client that asked %s after the change was answered by %s", a.begun.Sub(end), a.pod)
		case heard:
			return fmt.Errorf("a client that asked %s after the change got no answer from %s any more: %w", a.begun.Sub(end), pod, a.err)
		}
	}
	if !heard {
		return fmt.Errorf("no client was answered by %s", pod)
	}
	return nil
}

// speaksAlone returns an error unless only the pod has used each of its addresses.
func speaksAlone(frames []capture.Frame, pod *cluster.Pod) error {
	mac, err := pod.MAC()
	if err != nil {
		return err
	}
	for _, addr := range pod.IPs {
		if speakers := capture.Speakers(frames, addr); len(speakers) != 1 || speakers[0] != mac.String() {
			return fmt.Errorf("%v speak for %s of pod %s, whose MAC is %s", speakers, addr, pod.Name, mac)
		}
	}
	return nil
}

// addresses contains all addresses of the scenario and its foreign hosts.
func (a *act) addresses() netip.Prefix { return netip.PrefixFrom(a.address(0), 24) }

// takeTurns returns an error unless each address had one speaker at a time: after a MAC has first
// spoken for an address, no earlier speaker may do so again. frames must be in order of arrival.
func takeTurns(frames []capture.Frame, among netip.Prefix) error {
	turns := map[netip.Addr][]capture.Frame{} // the first frame of each speaker
	for _, f := range frames {
		for _, addr := range f.Speaks {
			if !among.Contains(addr) {
				continue
			}
			var err error
			if turns[addr], err = takeTurn(turns[addr], f); err != nil {
				return fmt.Errorf("two speakers for %s: %w", addr, err)
			}
		}
	}
	return nil
}

// takeTurn adds a frame to the first frames of the speakers for its address, if its speaker is new.
func takeTurn(began []capture.Frame, f capture.Frame) ([]capture.Frame, error) {
	for i, first := range began {
		if first.Source.String() != f.Source.String() {
			continue
		}
		if last := began[len(began)-1]; i < len(began)-1 {
			return began, fmt.Errorf("%s speaks by %s %s after %s has begun by %s: %s",
				f.Source, f.Port, round(f.Time.Sub(last.Time)), last.Source, last.Port, f)
		}
		return began, nil
	}
	return append(began, f), nil
}
