// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// lastFrame returns the time of the old holder's last frame, relative to the claim.
func lastFrame(p capture.Passage) string {
	after := p.Last.Time.Sub(p.Claim.Time)
	if after > 0 {
		return fmt.Sprintf("%s after the claim", round(after))
	}
	return fmt.Sprintf("%s before the claim", round(-after))
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

// speaksAlone fails unless only the pod has used each of its addresses.
func speaksAlone(frames []capture.Frame, pod *cluster.Pod) {
	mac := macOf(pod).String()
	for _, addr := range pod.IPs {
		speakers := capture.Speakers(frames, addr)
		must(len(speakers) == 1 && speakers[0] == mac, "%v speak for %s of pod %s, whose MAC is %s", speakers, addr, pod.Name, mac)
	}
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
