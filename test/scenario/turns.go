// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/test/capture"
)

// addresses holds all addresses of the scenario, those of foreign hosts too.
func (a *act) addresses() netip.Prefix { return netip.PrefixFrom(a.address(0), 24) }

// takeTurns returns an error unless each address had one speaker at a time: once
// a MAC has spoken for an address, those that spoke for it earlier never do again.
// frames are in the order of their arrival.
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

// takeTurn lets a frame follow those with which the speakers for one address
// began, and returns these.
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
