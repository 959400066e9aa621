// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// MaxSlot is the greatest slot; the lowest is 1.
const MaxSlot = uint32(observerSlotLimitSLOTS_MAX) - 1

// Status and flags of a slot.
const (
	slotFree  = uint32(observerSlotStatusSLOT_FREE)
	slotAlive = uint32(observerSlotStatusSLOT_ALIVE)
	slotDead  = uint32(observerSlotStatusSLOT_DEAD)

	slotVerify = uint32(observerSlotFlagSLOT_VERIFY)
)

// SlotDead reports whether the slot was killed and not detached since.
func (t *slotTable) SlotDead(slot uint32) (bool, error) {
	status, err := t.status(slot)
	return status == slotDead, err
}

// SlotUsed reports whether the slot was attached or killed, and not detached or swept since.
func (t *slotTable) SlotUsed(slot uint32) (bool, error) {
	status, err := t.status(slot)
	return status != slotFree, err
}

func (t *slotTable) status(slot uint32) (uint32, error) {
	if err := checkSlot(slot); err != nil {
		return slotFree, fmt.Errorf("slot %d: %w", slot, err)
	}
	s, err := t.slot(slot)
	return s.Status, err
}

// usedSlots returns the slots that an earlier process has left in use.
func (t *slotTable) usedSlots() (used []uint32, err error) {
	for slot := uint32(1); slot < t.maps.Slots.MaxEntries(); slot++ {
		s, err := t.slot(slot)
		if err != nil {
			return nil, err
		}
		if s.Status != slotFree {
			used = append(used, slot)
		}
	}
	return used, nil
}

// kindsOf returns the kinds of guards of slots, for guard.Shared: true as key for virtual functions, false
// for other interfaces.
func (t *slotTable) kindsOf(slots []uint32) (kinds map[bool]bool, err error) {
	kinds = map[bool]bool{}
	for _, slot := range slots {
		s, err := t.slot(slot)
		if err != nil {
			return nil, err
		}
		kinds[s.Flags&slotVerify != 0] = true
	}
	return kinds, nil
}

// freeSlots frees all slots, so that pods whose guards stay in filters are not mute after Remove. It
// needs mu.
func (t *slotTable) freeSlots() error {
	used, err := t.usedSlots()
	if err != nil {
		return err
	}
	for _, slot := range used {
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

func (t *slotTable) slot(slot uint32) (s observerSlot, err error) {
	if err := t.maps.Slots.Lookup(slot, &s); err != nil {
		return s, fmt.Errorf("read slot %d: %w", slot, err)
	}
	return s, nil
}

func (t *slotTable) putSlot(slot uint32, s observerSlot) error {
	if err := t.maps.Slots.Put(slot, s); err != nil {
		return fmt.Errorf("write slot %d: %w", slot, err)
	}
	return nil
}
