package bpf

import (
	"fmt"
	"net"
	"time"
)

// Sighting is who was last seen speaking for an address on a segment: a hint, the kernel forgets the oldest.
type Sighting struct {
	// MAC spoke for the address at LastSeen, by a frame of Kind; zero LastSeen: nobody did.
	MAC      net.HardwareAddr
	LastSeen time.Duration
	Kind     Kind
	// ProbeMAC asked for the address at LastProbe (ARP probe, DAD), kept apart as it need not own it.
	ProbeMAC  net.HardwareAddr
	LastProbe time.Duration
}

// Sighting returns who was last seen with an address, and whether anybody was.
func (k *Kernel) Sighting(key Key) (Sighting, bool, error) {
	var s observerSighting
	ok, err := lookup(k.maps.Sightings, key.layout(), &s)
	if err != nil {
		return Sighting{}, false, fmt.Errorf("read sighting of %s: %w", key, err)
	}
	return s.sighting(), ok, nil
}

// SightedWithin tells whether somebody spoke for an address less than d ago. Who only asked for it did not speak, and
// what cannot be read is as good as forgotten.
func (k *Kernel) SightedWithin(key Key, d time.Duration) bool {
	s, ok, err := k.Sighting(key)
	return err == nil && ok && s.LastSeen != 0 && k.Now()-s.LastSeen < d
}
