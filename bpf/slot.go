// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
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

// SlotDead reports whether the slot was killed and not detached since.
func (t *tables) SlotDead(slot uint32) (bool, error) {
	status, err := t.status(slot)
	return status == slotDead, err
}

// SlotUsed reports whether the slot was attached or killed, and not detached or swept since.
func (t *tables) SlotUsed(slot uint32) (bool, error) {
	status, err := t.status(slot)
	return status != slotFree, err
}

func (t *tables) status(slot uint32) (uint32, error) {
	if err := checkSlot(slot); err != nil {
		return slotFree, fmt.Errorf("slot %d: %w", slot, err)
	}
	s, err := t.slot(slot)
	return s.Status, err
}

func (t *tables) usedSlots() (map[uint32]observerSlot, error) {
	used := map[uint32]observerSlot{}
	for slot := uint32(1); slot < t.maps.Slots.MaxEntries(); slot++ {
		s, err := t.slot(slot)
		if err != nil {
			return nil, err
		}
		if s.Status != slotFree {
			used[slot] = s
		}
	}
	return used, nil
}

// freeSlots frees all slots, so that no pod with a guard left in filters is mute. It needs mu.
func (t *tables) freeSlots() error {
	used, err := t.usedSlots()
	if err != nil {
		return err
	}
	for slot := range used {
		if err := t.putSlot(slot, observerSlot{}); err != nil {
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

func (t *tables) slot(slot uint32) (s observerSlot, err error) {
	if err := t.maps.Slots.Lookup(slot, &s); err != nil {
		return s, fmt.Errorf("read slot %d: %w", slot, err)
	}
	return s, nil
}

func (t *tables) putSlot(slot uint32, s observerSlot) error {
	if err := t.maps.Slots.Put(slot, s); err != nil {
		return fmt.Errorf("write slot %d: %w", slot, err)
	}
	return nil
}
