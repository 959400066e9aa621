// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// MaxSlot is the greatest slot; the lowest is 1.
const MaxSlot = uint32(observerSlotLimitSLOTS_MAX) - 1

// ErrSlot is returned for slot 0 and for slots greater than MaxSlot.
var ErrSlot = errors.New("slot out of range")

// Status and flags of a slot.
const (
	slotFree  = uint32(observerSlotStatusSLOT_FREE)
	slotAlive = uint32(observerSlotStatusSLOT_ALIVE)
	slotDead  = uint32(observerSlotStatusSLOT_DEAD)

	slotVerify = uint32(observerSlotFlagSLOT_VERIFY)
)

// Slots are the slots of guards in the kernel's map.
type Slots struct{ entries *ebpf.Map }

// Dead reports whether the slot was killed and not detached since.
func (s *Slots) Dead(slot uint32) (bool, error) {
	status, err := s.status(slot)
	return status == slotDead, err
}

// Used reports whether the slot was attached or killed, and not detached or swept since.
func (s *Slots) Used(slot uint32) (bool, error) {
	status, err := s.status(slot)
	return status != slotFree, err
}

func (s *Slots) status(slot uint32) (uint32, error) {
	if err := checkSlot(slot); err != nil {
		return slotFree, fmt.Errorf("slot %d: %w", slot, err)
	}
	r, err := s.read(slot)
	return r.Status, err
}

// used returns the records of the slots that are not free.
func (s *Slots) used() (map[uint32]observerSlot, error) {
	used := map[uint32]observerSlot{}
	for slot := uint32(1); slot < s.entries.MaxEntries(); slot++ {
		r, err := s.read(slot)
		if err != nil {
			return nil, err
		}
		if r.Status != slotFree {
			used[slot] = r
		}
	}
	return used, nil
}

// free frees all slots, so that no pod with a guard left in filters is mute. It needs mu.
func (s *Slots) free() error {
	used, err := s.used()
	if err != nil {
		return err
	}
	for slot := range used {
		if err := s.write(slot, observerSlot{}); err != nil {
			return err
		}
	}
	return nil
}

func checkSlot(slot uint32) error {
	if slot == 0 || slot > MaxSlot {
		return ErrSlot
	}
	return nil
}

func (s *Slots) read(slot uint32) (r observerSlot, err error) {
	if err := s.entries.Lookup(slot, &r); err != nil {
		return r, fmt.Errorf("read slot %d: %w", slot, err)
	}
	return r, nil
}

func (s *Slots) write(slot uint32, r observerSlot) error {
	if err := s.entries.Put(slot, r); err != nil {
		return fmt.Errorf("write slot %d: %w", slot, err)
	}
	return nil
}

// change changes the record of a slot. It needs mu.
func (s *Slots) change(slot uint32, change func(*observerSlot)) error {
	before, err := s.read(slot)
	if err != nil {
		return err
	}
	r := before
	if change(&r); r == before {
		return nil
	}
	return s.write(slot, r)
}

// describe takes over what the programs know of a guard. It keeps a killed slot dead until it is detached:
// after a crash its guard is attached again, but its pod stays silenced. It also keeps host link and sources,
// and on the same segment the named addresses.
func (r *observerSlot) describe(guard observerSlot) {
	if r.Segment != guard.Segment {
		r.Leased4, r.Leased6 = 0, observerSlot{}.Leased6
	}
	r.Segment, r.Netns, r.Flags = guard.Segment, guard.Netns, guard.Flags
	switch {
	case r.Status == slotDead:
	case guard.Status != slotFree:
		r.Status = slotAlive
	default:
		r.Status = slotFree
	}
}

// verifies reports whether the guard checks claims.
func (r observerSlot) verifies() bool { return r.Flags&slotVerify != 0 }
