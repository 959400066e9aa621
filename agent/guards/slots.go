// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/fenceline/fenceline/bpf"
)

// FirstSlot is the lowest number of a slot; 0 means none.
const FirstSlot = 1

var errNoSlot = errors.New("every slot is in use")

// Slots numbers the guards of this node. A number is used again as late as possible, so that the
// remains of an old guard are not mistaken for a new guard. Safe for concurrent use.
type Slots struct {
	mu   sync.Mutex
	used map[uint32]bool
	left map[uint32]bool
	next uint32
}

func newSlots() *Slots {
	return &Slots{next: FirstSlot, used: map[uint32]bool{}, left: map[uint32]bool{}}
}

// Take returns a slot for an interface.
func (s *Slots) Take() (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range bpf.MaxSlot {
		slot := s.next
		s.next = after(slot)
		if !s.used[slot] {
			s.used[slot] = true
			return slot, nil
		}
	}
	return 0, errNoSlot
}

func after(slot uint32) uint32 {
	if slot >= bpf.MaxSlot {
		return FirstSlot
	}
	return slot + 1
}

// Keep marks a slot that was found after a restart as used. The next new slot comes after it.
func (s *Slots) Keep(slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[slot] = true
	delete(s.left, slot)
	if slot >= s.next {
		s.next = after(slot)
	}
}

// Leave marks a slot whose entry is gone. Sweep frees it when its guard is gone as well.
func (s *Slots) Leave(slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[slot] = true
}

// leaving returns the slots that wait for the end of their guards.
func (s *Slots) leaving() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.left))
}

// PutBack takes back a slot whose guard and kernel entries are gone, or were never made.
func (s *Slots) PutBack(slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, slot)
	delete(s.used, slot)
}
