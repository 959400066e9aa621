// SPDX-License-Identifier: Apache-2.0

package bpf

import (
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

// Sightings are the speakers and the claims of other nodes that were heard on the segments. The kernel
// records them.
type Sightings struct {
	maps   *observerMaps
	leases *Leases
}

// Last returns the last speaker and prober of an address, and false if there was neither.
func (s *Sightings) Last(key Key) (Sighting, bool, error) {
	var last observerSighting
	ok, err := lookup(s.maps.Sightings, key.layout(), &last)
	if err != nil {
		return Sighting{}, false, fmt.Errorf("read sighting of %s: %w", key, err)
	}
	return last.sighting(), ok, nil
}

// Speakers returns up to limit addresses of a family that other hosts have used on the segment, the
// latest first. Addresses that are leased on this node, and link-local ones, which may be those of its
// pods, are not among them.
func (s *Sightings) Speakers(segment uint32, v4 bool, limit int) ([]netip.Addr, error) {
	type speaker struct {
		addr netip.Addr
		at   uint64
	}
	var speakers []speaker
	const batch = 256 // an iterator would make two system calls for each sighting
	keys, sightings := make([]observerLeaseKey, batch), make([]observerSighting, batch)
	for cursor, more := new(ebpf.MapBatchCursor), true; more; {
		n, err := s.maps.Sightings.BatchLookup(cursor, keys, sightings, nil)
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
	for _, one := range speakers {
		if len(latest) == limit {
			break
		}
		l, ok, err := s.leases.Lease(Key{Segment: segment, Addr: one.addr})
		if err != nil {
			return nil, err
		}
		if !ok || !l.held() {
			latest = append(latest, one.addr)
		}
	}
	return latest, nil
}

// Vouched returns up to limit addresses of a family for which a valid claim of another node came in
// on the segment less than d ago, the latest first. The kernel records at most one a second.
func (s *Sightings) Vouched(segment uint32, v4 bool, d time.Duration, limit int) ([]netip.Addr, error) {
	all, err := entriesOf[observerLeaseKey, uint64](s.maps.Vouched)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of other nodes on segment %d: %w", segment, err)
	}
	since := Now() - d
	at := map[netip.Addr]uint64{}
	for layout, ns := range all {
		if key := layout.key(); key.Segment == segment && key.Addr.Is4() == v4 && time.Duration(ns) > since {
			at[key.Addr] = ns
		}
	}
	latest := slices.SortedFunc(maps.Keys(at), func(a, b netip.Addr) int { return cmp.Compare(at[b], at[a]) })
	return latest[:min(limit, len(latest))], nil
}

// Within reports whether a host used an address less than d ago. A probe does not count as
// use. If the map cannot be read, it returns false.
func (s *Sightings) Within(key Key, d time.Duration) bool {
	last, ok, err := s.Last(key)
	return err == nil && ok && last.LastSeen != 0 && Now()-last.LastSeen < d
}

// Heard returns when a valid claim or ack of another node last came in on the segment, with a
// resolution of one second; ok is false if none has ever come in. R2: without such evidence,
// silence proves nothing.
func (s *Sightings) Heard(segment uint32) (at time.Duration, ok bool, err error) {
	var ns uint64
	ok, err = lookup(s.maps.Hearing, segment, &ns)
	if err != nil {
		return 0, false, fmt.Errorf("read hearing of segment %d: %w", segment, err)
	}
	return time.Duration(ns), ok && ns != 0, nil
}
