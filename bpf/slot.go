// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
)

// MaxSlot is the greatest slot; the lowest is 1.
const MaxSlot = uint32(observerSlotLimitSLOTS_MAX) - 1

// Status and flags of a slot.
const (
	slotFree  = uint32(observerSlotStatusSLOT_FREE)
	slotAlive = uint32(observerSlotStatusSLOT_ALIVE)
	slotDead  = uint32(observerSlotStatusSLOT_DEAD)

	slotVerify = uint32(observerSlotFlagSLOT_VERIFY)
)

// KillSlot makes the slot's guard drop every frame in both directions, and the parent's observer
// every frame that bypasses the guard. It holds until the guard is detached.
func (gs *guards) KillSlot(slot uint32) error {
	gs.tables.mu.Lock()
	defer gs.tables.mu.Unlock()
	if err := gs.killSlot(slot); err != nil {
		return fmt.Errorf("kill slot %d: %w", slot, err)
	}
	return nil
}

func (gs *guards) killSlot(slot uint32) error {
	if err := checkSlot(slot); err != nil {
		return err
	}
	s, err := gs.tables.slot(slot)
	if err != nil {
		return err
	}
	s.Status = slotDead
	if err := gs.tables.putSlot(slot, s); err != nil {
		return err
	}
	gs.stages.unrecorded[slot] = true // until a sweep finds that no guard of it is loaded
	if err := gs.tables.openGate(); err != nil || !gs.tables.hasTwin(slot) {
		return err
	}
	return gs.tables.tellLocals()
}

// SlotDead reports whether the slot was killed and not detached since.
func (t *slotTable) SlotDead(slot uint32) (bool, error) {
	if err := checkSlot(slot); err != nil {
		return false, fmt.Errorf("slot %d: %w", slot, err)
	}
	s, err := t.slot(slot)
	return s.Status == slotDead, err
}

// SlotUsed reports whether the slot was attached or killed, and not detached or swept since.
func (t *slotTable) SlotUsed(slot uint32) (bool, error) {
	if err := checkSlot(slot); err != nil {
		return false, fmt.Errorf("slot %d: %w", slot, err)
	}
	s, err := t.slot(slot)
	return s.Status != slotFree, err
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

// changeSlot is putSlot for callers that do not hold mu. It keeps what others write: the named
// addresses, the host link and the sources. A killed slot stays dead until it is detached: after a
// crash its guard is attached again, but its pod stays silenced.
func (t *slotTable) changeSlot(slot uint32, s observerSlot) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	present, err := t.slot(slot)
	if err != nil {
		return err
	}
	s.Leased4, s.Leased6, s.HostLink = present.Leased4, present.Leased6, present.HostLink
	s.Sources, s.Mac = present.Sources, present.Mac
	if present.Status == slotDead {
		s.Status = slotDead
	}
	return t.putSlot(slot, s)
}

func (t *slotTable) putSlot(slot uint32, s observerSlot) error {
	if err := t.maps.Slots.Put(slot, s); err != nil {
		return fmt.Errorf("write slot %d: %w", slot, err)
	}
	return nil
}
