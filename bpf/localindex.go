// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// localHashes is the number of entries of the index of locals.
const localHashes = uint32(observerLocalIndexEntryLOCAL_INDEX)

// localIndex has the entries of the index of locals, by the hash of a MAC, and that of the rest.
type localIndex struct {
	entries map[uint32]uint64
	rest    uint64
}

func (i *localIndex) at(hash uint32) uint64 {
	if entry, ok := i.entries[hash]; ok {
		return entry
	}
	return i.rest
}

// changedSince returns the hashes whose entries may differ from those of an older index: all of them if
// there is none (nil).
func (i *localIndex) changedSince(old *localIndex) (hashes []uint32) {
	if old == nil || old.rest != i.rest {
		for hash := range localHashes {
			hashes = append(hashes, hash)
		}
		return hashes
	}
	for hash, entry := range i.entries {
		if old.at(hash) != entry {
			hashes = append(hashes, hash)
		}
	}
	for hash := range old.entries {
		if _, ok := i.entries[hash]; !ok {
			hashes = append(hashes, hash)
		}
	}
	return hashes
}

// The entries without a MAC.
const (
	// localAsk: look into the map of locals. New maps have it.
	localAsk = uint64(observerLocalIndexEntryLOCAL_ASK)
	// localNobody: no local with a slot has a MAC of this hash, and no parent is exclusive.
	localNobody = uint64(observerLocalIndexEntryLOCAL_NOBODY)
)

// localHash is local_entry_of of local.h.
func localHash(mac [3]uint16) uint32 {
	hash := mac[0] ^ mac[1] ^ mac[2]
	return uint32(hash^hash>>8) % localHashes
}

// indexOf returns the index of locals. It has one of several locals with the same hash; the kernel
// finds the others in the map of locals. A local without a slot has no entry: its frames pass.
func indexOf(locals map[observerLocalKey]uint32, exclusive bool) *localIndex {
	index := &localIndex{entries: map[uint32]uint64{}, rest: localNobody}
	if exclusive {
		index.rest = localAsk
	}
	for key, slot := range locals {
		if slot != 0 {
			hash := localHash(key.Mac.Part)
			index.entries[hash] = max(index.entries[hash], localEntry(key.Mac.Part, slot))
		}
	}
	return index
}

// localEntry is speaker_of of speaker.h, with a slot in place of the kind.
func localEntry(mac [3]uint16, slot uint32) uint64 {
	var entry uint64
	for i, part := range append(mac[:], uint16(slot)) {
		entry |= uint64(part) << (16 * i)
	}
	return entry
}

// writeIndex writes the index of the map of locals.
func (l *locals) writeIndex() error {
	parents, err := parentRecords(l.maps)
	if err != nil {
		return err
	}
	exclusive := false
	for _, p := range parents {
		exclusive = exclusive || p.Flags&parentExclusive != 0
	}
	wanted := indexOf(l.entries, exclusive)
	changed := wanted.changedSince(l.index)
	l.index = nil // a write that fails may have changed some entries
	if err := l.putIndex(changed, wanted); err != nil {
		return err
	}
	l.index = wanted
	return nil
}

func (l *locals) putIndex(hashes []uint32, from *localIndex) error {
	if len(hashes) == 0 {
		return nil
	}
	entries := make([]uint64, len(hashes))
	for i, hash := range hashes {
		entries[i] = from.at(hash)
	}
	if _, err := l.maps.LocalIndex.BatchUpdate(hashes, entries, nil); err != nil {
		return fmt.Errorf("index the MACs of devices: %w", err)
	}
	return nil
}
