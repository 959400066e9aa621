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

// slots numbers the guards of this node. A number is used again as late as possible, so that the
// remains of an old guard are not taken for a new guard.
type slots struct {
	mu   sync.Mutex
	used map[uint32]bool
	left map[uint32]bool
	next uint32
}

// take returns an unused slot.
func (s *slots) take() (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range bpf.MaxSlot {
		slot := s.next
		if s.next++; s.next > bpf.MaxSlot {
			s.next = FirstSlot
		}
		if !s.used[slot] {
			s.use(slot)
			return slot, nil
		}
	}
	return 0, errNoSlot
}

// keep marks a slot found after a restart; the next new one comes after it.
func (s *slots) keep(slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use(slot)
	delete(s.left, slot)
	if slot >= s.next {
		if s.next = slot + 1; s.next > bpf.MaxSlot {
			s.next = FirstSlot
		}
	}
}

// leave marks a slot whose entry is gone from the journal. The slot is free once its
// guard is gone as well.
func (s *slots) leave(slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == nil {
		s.left = map[uint32]bool{}
	}
	s.left[slot] = true
}

// leaving returns the slots that wait for their guards to go.
func (s *slots) leaving() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.left))
}

// free frees a slot whose guard and kernel entries are gone.
func (s *slots) free(slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, slot)
	delete(s.used, slot)
}

func (s *slots) use(slot uint32) {
	if s.used == nil {
		s.used = map[uint32]bool{}
	}
	s.used[slot] = true
}
