// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/fenceline/fenceline/bpf/attach"
)

// stagedGuard is a guard in filters, without both of its pinned links.
type stagedGuard struct {
	Guard
	netns uint32
	index int
}

// reopen opens the device, unless it does not exist any more.
func (s stagedGuard) reopen() (*attach.Device, error) {
	dev, err := attach.ReopenDevice(s.path(), s.netns, s.index)
	if err == nil {
		dev.Turned = s.NodeEnd != 0
	}
	return dev, err
}

// stages are the staged guards of this process, and the slots without a record.
type stages struct {
	mu     *sync.Mutex
	slots  *Slots
	gate   *gate
	locals *locals
	staged map[uint32]stagedGuard
	// unrecorded are the slots that may have no other record: they were in use before this process,
	// were killed, or have lost their stage. They stay here until they are detached.
	unrecorded map[uint32]bool
}

// kill makes the programs drop every frame of a slot, until it is detached. It needs mu.
func (st *stages) kill(slot uint32) error {
	if err := checkSlot(slot); err != nil {
		return err
	}
	st.unrecorded[slot] = true // until a sweep finds that no guard of it is loaded
	if err := st.slots.change(slot, func(s *observerSlot) { s.Status = slotDead }); err != nil {
		return err
	}
	if err := st.gate.open(); err != nil || !st.locals.hasTwin(slot) {
		return err
	}
	return st.locals.tell()
}

// takeUp records a guard that an earlier process has staged and that stays staged, so that
// Detach removes its filters.
func (st *stages) takeUp(s stagedGuard) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.staged[s.Slot] = s
}

// of returns the stage of a slot; ok is false if this process knows of none.
func (st *stages) of(slot uint32) (stagedGuard, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s, ok := st.staged[slot]
	return s, ok
}

func (st *stages) forget(slot uint32) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.staged, slot)
}

// remove removes the filters of a staged guard. A slot that is not staged is no error.
func (st *stages) remove(slot uint32) error {
	_, err := st.onDevice(slot, func(dev *attach.Device) (bool, error) { return true, dev.RemoveFilters(slot) })
	if err != nil && !attach.IsGone(err) {
		return err
	}
	st.forget(slot)
	return nil
}

func (st *stages) removeAll() error {
	var errs []error
	for _, slot := range st.all() {
		errs = append(errs, st.remove(slot))
	}
	return errors.Join(errs...)
}

func (st *stages) all() []uint32 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Collect(maps.Keys(st.staged))
}

// lives reports whether the slot is staged on an existing device.
func (st *stages) lives(slot uint32) (bool, error) {
	return st.onDevice(slot, func(*attach.Device) (bool, error) { return true, nil })
}

// gone reports whether the slot has no stage on a device, and forgets a stage without one.
func (st *stages) gone(slot uint32) (bool, error) {
	lives, err := st.lives(slot)
	if err != nil || lives {
		return false, err
	}
	st.forget(slot)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.unrecorded[slot] = true
	return true, nil
}

// enforces reports whether the slot is staged on an existing device that still has both filters.
func (st *stages) enforces(slot uint32) (bool, error) {
	return st.onDevice(slot, func(dev *attach.Device) (bool, error) { return dev.Filtered(slot) })
}

// onDevice calls ask with the device of the slot's stage, and returns false if there is none.
func (st *stages) onDevice(slot uint32, ask func(*attach.Device) (bool, error)) (bool, error) {
	s, ok := st.of(slot)
	if !ok {
		return false, nil
	}
	dev, err := s.reopen()
	if err != nil {
		if attach.IsGone(err) {
			err = nil
		}
		return false, err
	}
	defer dev.Close()
	return ask(dev)
}
