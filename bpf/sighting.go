// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cilium/ebpf"
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

// forgetOwnSighting forgets that the holder here has used its address, when its lease ends. A later
// holder on another node may have the same MAC, and must not pass for a speaker that this segment
// has heard.
func (t *tables) forgetOwnSighting(key Key) error {
	l, ok, err := t.Lease(key)
	if err != nil || !ok || !l.held() || l.Flags&FlagDown != 0 {
		return err
	}
	s, ok, err := t.Sighting(key)
	if err != nil || !ok || !bytes.Equal(s.MAC, l.MAC) {
		return err
	}
	if err := t.maps.Sightings.Delete(key.layout()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget the sighting of %s: %w", key, err)
	}
	return nil
}
