// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/bpf"
)

// Sightings is the part of the kernel programs that records who speaks on the parents. *bpf.Kernel
// implements it.
type Sightings interface {
	ObserversAttached() (map[int]bool, error)
	Sighting(bpf.Key) (bpf.Sighting, bool, error)
}

// heard returns the parents of this node on which the last holder used the address, by index. Its
// frames reached this node there, so that parent leads to the holder's segment, whatever its name
// is. The MAC tells the holder from every other speaker. It is the pod's own, or with ipvlan its
// node's.
func (p *Parents) heard(last segment.LastHolder) ([]int, error) {
	if len(last.MAC) == 0 {
		return nil, nil
	}
	observed, err := p.Sightings.ObserversAttached()
	if err != nil {
		return nil, fmt.Errorf("look for the parents that have heard %s: %w", last.Addr, err)
	}
	var parents []int
	for _, parent := range slices.Sorted(maps.Keys(observed)) {
		s, ok, err := p.Sightings.Sighting(bpf.Key{Segment: uint32(parent), Addr: last.Addr})
		if err != nil {
			return nil, err
		}
		if ok && s.LastSeen != 0 && bytes.Equal(s.MAC, last.MAC) && Exists(parent) {
			parents = append(parents, parent)
		}
	}
	return parents, nil
}
