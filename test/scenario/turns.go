// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/test/capture"
)

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
