// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// Offence is an attempt of a slot against its source guard.
type Offence struct {
	// Slot is 0 for ResultDropStranger: a MAC that no device of the node has.
	Slot   uint32
	Result Result
	// Observed: the frames passed, since the pool only observes.
	Observed bool
}

// Offence returns the offence of an event of type EventSource.
func (e Event) Offence() Offence {
	return Offence{Slot: uint32(e.Token), Result: Result(e.Mine & 0xffff), Observed: e.Mine>>16 != 0}
}

// Offences returns the number of frames of each offence since the slot was attached.
func (t *sourceTables) Offences() (map[Offence]uint64, error) {
	all := map[Offence]uint64{}
	var key observerOffenceKey
	var o observerOffence
	it := t.maps.Offences.Iterate()
	for it.Next(&key, &o) {
		all[Offence{Slot: key.Slot, Result: Result(key.Result), Observed: key.Observed != 0}] = o.Frames
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("list offences: %w", err)
	}
	return all, nil
}

// forgetOffences removes the counts of a slot.
func (t *sourceTables) forgetOffences(slot uint32) error {
	all, err := t.Offences()
	if err != nil {
		return err
	}
	for o := range all {
		if o.Slot != slot {
			continue
		}
		key := observerOffenceKey{Slot: o.Slot, Result: uint16(o.Result)}
		if o.Observed {
			key.Observed = 1
		}
		if err := deleteEntry(t.maps.Offences, key); err != nil {
			return fmt.Errorf("forget offences: %w", err)
		}
	}
	return nil
}
