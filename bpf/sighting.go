// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

// Sighting is the last speaker of an address on a segment. The kernel forgets the oldest ones.
type Sighting struct {
	// MAC used the address at LastSeen, in a frame of Kind; LastSeen 0: there was no speaker.
	MAC      net.HardwareAddr
	LastSeen time.Duration
	Kind     Kind
	// ProbeMAC probed the address at LastProbe (ARP probe, DAD). It need not use the address.
	ProbeMAC  net.HardwareAddr
	LastProbe time.Duration
}

// Sighting returns the last speaker and prober of an address, and false if there was neither.
func (t *tables) Sighting(key Key) (Sighting, bool, error) {
	var s observerSighting
	ok, err := lookup(t.maps.Sightings, key.layout(), &s)
	if err != nil {
		return Sighting{}, false, fmt.Errorf("read sighting of %s: %w", key, err)
	}
	return s.sighting(), ok, nil
}

// Speakers returns up to limit addresses of a family that other hosts have used on the segment, the
// latest first. Addresses that are leased on this node, and link-local ones, which may be those of its
// pods, are not among them.
func (t *tables) Speakers(segment uint32, v4 bool, limit int) ([]netip.Addr, error) {
	type speaker struct {
		addr netip.Addr
		at   uint64
	}
	var speakers []speaker
	const batch = 256 // an iterator would make two system calls for each sighting
	keys, sightings := make([]observerLeaseKey, batch), make([]observerSighting, batch)
	for cursor, more := new(ebpf.MapBatchCursor), true; more; {
		n, err := t.maps.Sightings.BatchLookup(cursor, keys, sightings, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("list who speaks on segment %d: %w", segment, err)
		}
		more = err == nil
		for i := range n {
			key := keys[i].key()
			if key.Segment == segment && key.Addr.Is4() == v4 && sightings[i].Ns != 0 && !key.Addr.IsLinkLocalUnicast() {
				speakers = append(speakers, speaker{key.Addr, sightings[i].Ns})
			}
		}
	}
	slices.SortFunc(speakers, func(a, b speaker) int { return cmp.Compare(b.at, a.at) })
	var latest []netip.Addr
	for _, s := range speakers {
		if len(latest) == limit {
			break
		}
		l, ok, err := t.Lease(Key{Segment: segment, Addr: s.addr})
		if err != nil {
			return nil, err
		}
		if !ok || !l.held() {
			latest = append(latest, s.addr)
		}
	}
	return latest, nil
}

// Vouched returns up to limit addresses of a family for which a valid claim of another node came in
// on the segment less than d ago, the latest first. The kernel records at most one a second.
func (t *tables) Vouched(segment uint32, v4 bool, d time.Duration, limit int) ([]netip.Addr, error) {
	all, err := entriesOf[observerLeaseKey, uint64](t.maps.Vouched)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of other nodes on segment %d: %w", segment, err)
	}
	since := t.Now() - d
	at := map[netip.Addr]uint64{}
	for layout, ns := range all {
		if key := layout.key(); key.Segment == segment && key.Addr.Is4() == v4 && time.Duration(ns) > since {
			at[key.Addr] = ns
		}
	}
	latest := slices.SortedFunc(maps.Keys(at), func(a, b netip.Addr) int { return cmp.Compare(at[b], at[a]) })
	return latest[:min(limit, len(latest))], nil
}

// SightedWithin reports whether a host used an address less than d ago. A probe does not count as
// use. If the map cannot be read, it returns false.
func (t *tables) SightedWithin(key Key, d time.Duration) bool {
	s, ok, err := t.Sighting(key)
	return err == nil && ok && s.LastSeen != 0 && t.Now()-s.LastSeen < d
}

// forgetOwnSighting removes the sighting of the holder here when its lease ends. A later holder on
// another node may have the same MAC, and would pass for a speaker that this segment has heard.
func (t *tables) forgetOwnSighting(key Key) error {
	l, ok, err := t.Lease(key)
	if err != nil || !ok || !l.held() || l.Flags&FlagDown != 0 {
		return err
	}
	s, ok, err := t.Sighting(key)
	if err != nil || !ok || !bytes.Equal(s.MAC, l.MAC) {
		return err
	}
	if err := deleteEntry(t.maps.Sightings, key.layout()); err != nil {
		return fmt.Errorf("forget the sighting of %s: %w", key, err)
	}
	return nil
}
