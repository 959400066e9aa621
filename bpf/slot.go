package bpf

import "fmt"

// MaxSlot is the greatest slot; the lowest is 1. Keep in sync with slot.h.
const MaxSlot = 1<<14 - 1

// Status and flags of a slot. Keep in sync with slot.h.
const (
	slotFree  uint32 = 0
	slotAlive uint32 = 1
	slotDead  uint32 = 2

	slotVerify      uint32 = 1 << 0
	slotSourceGuard uint32 = 1 << 1
)

// KillSlot makes the slot's guard drop every frame from now on, in both directions, and the parent's observer what
// gets around the guard. It holds until the guard is detached.
func (k *Kernel) KillSlot(slot uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.killSlot(slot); err != nil {
		return fmt.Errorf("kill slot %d: %w", slot, err)
	}
	return nil
}

func (k *Kernel) killSlot(slot uint32) error {
	if err := checkSlot(slot); err != nil {
		return err
	}
	s, err := k.slot(slot)
	if err != nil {
		return err
	}
	s.Status = slotDead
	if err := k.putSlot(slot, s); err != nil {
		return err
	}
	k.untold[slot] = true // until a sweep finds that it guards nothing
	return k.openGate()
}

// SlotDead reports whether the slot was killed and its guard not detached since.
func (k *Kernel) SlotDead(slot uint32) (bool, error) {
	if err := checkSlot(slot); err != nil {
		return false, fmt.Errorf("slot %d: %w", slot, err)
	}
	s, err := k.slot(slot)
	return s.Status == slotDead, err
}

func checkSlot(slot uint32) error {
	if slot == 0 || slot > MaxSlot {
		return ErrSlot
	}
	return nil
}

func (k *Kernel) slot(slot uint32) (s observerSlot, err error) {
	if err := k.maps.Slots.Lookup(slot, &s); err != nil {
		return s, fmt.Errorf("read slot %d: %w", slot, err)
	}
	return s, nil
}

// changeSlot is putSlot for who does not hold mu.
func (k *Kernel) changeSlot(slot uint32, s observerSlot) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.putSlot(slot, s)
}

func (k *Kernel) putSlot(slot uint32, s observerSlot) error {
	if err := k.maps.Slots.Put(slot, s); err != nil {
		return fmt.Errorf("write slot %d: %w", slot, err)
	}
	return nil
}
