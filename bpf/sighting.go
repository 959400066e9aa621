// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"net"
	"time"
)

// Sighting is the last speaker of an address on a segment. It is a hint: the kernel forgets the
// oldest.
type Sighting struct {
	// MAC used the address at LastSeen, in a frame of Kind; LastSeen 0: there was no speaker.
	MAC      net.HardwareAddr
	LastSeen time.Duration
	Kind     Kind
	// ProbeMAC probed the address at LastProbe (ARP probe, DAD). It need not use the address.
	ProbeMAC  net.HardwareAddr
	LastProbe time.Duration
}

// Sighting returns the last speaker and the last prober of an address; the bool is false if there
// was neither.
func (t *tables) Sighting(key Key) (Sighting, bool, error) {
	var s observerSighting
	ok, err := lookup(t.maps.Sightings, key.layout(), &s)
	if err != nil {
		return Sighting{}, false, fmt.Errorf("read sighting of %s: %w", key, err)
	}
	return s.sighting(), ok, nil
}

// SightedWithin reports whether a host used an address less than d ago. A probe does not count as
// use. If the map cannot be read, it returns false.
func (t *tables) SightedWithin(key Key, d time.Duration) bool {
	s, ok, err := t.Sighting(key)
	return err == nil && ok && s.LastSeen != 0 && t.Now()-s.LastSeen < d
}
