// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// Offence is an attempt of a slot against its source guard.
type Offence struct {
	// Slot is 0 for ResultDropStranger: its MAC is that of no slot.
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
func (g *SourceGuard) Offences() (map[Offence]uint64, error) {
	counted, err := entriesOf[observerOffenceKey, observerOffence](g.maps.Offences)
	if err != nil {
		return nil, fmt.Errorf("list offences: %w", err)
	}
	all := make(map[Offence]uint64, len(counted))
	for key, o := range counted {
		all[Offence{Slot: key.Slot, Result: Result(key.Result), Observed: key.Observed != 0}] = o.Frames
	}
	return all, nil
}

func (g *SourceGuard) forgetOffences(slot uint32) error {
	counted, err := entriesOf[observerOffenceKey, observerOffence](g.maps.Offences)
	if err != nil {
		return fmt.Errorf("list offences: %w", err)
	}
	for key := range counted {
		if key.Slot == slot {
			if err := deleteEntry(g.maps.Offences, key); err != nil {
				return fmt.Errorf("forget offences: %w", err)
			}
		}
	}
	return nil
}
