// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/bpf/enforce"
)

// FirstSlot is the lowest number of a slot; 0 means none.
const FirstSlot = 1

// stockSize is how many guards are loaded ahead for each parent that pods use. In a
// larger burst, the ADDs load the other guards themselves.
const stockSize = 8

var errNoSlot = errors.New("every slot is in use")

// Slots numbers the guards of this node. A number is used again as late as possible, so that the
// remains of an old guard are not mistaken for a new guard. Slots has a stock of slots whose guards
// are loaded ahead: the kernel's verifier takes tens of milliseconds for each. Safe for concurrent
// use.
type Slots struct {
	prepare func(enforce.Guard) error
	drop    func(slot uint32)

	// filling is held while guards are loaded, so that one is loaded after the other.
	filling sync.Mutex

	mu   sync.Mutex
	used map[uint32]bool
	left map[uint32]bool
	next uint32
	// ready is the stock, by parent.
	ready map[int][]uint32
}

func newSlots(prepare func(enforce.Guard) error, drop func(slot uint32)) *Slots {
	return &Slots{
		prepare: prepare, drop: drop, next: FirstSlot,
		used: map[uint32]bool{}, left: map[uint32]bool{}, ready: map[int][]uint32{},
	}
}

// Take returns a slot for an interface on a parent. It prefers a slot whose guard is already
// loaded.
func (s *Slots) Take(parent int) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ready := s.ready[parent]; len(ready) > 0 {
		s.ready[parent] = ready[1:]
		return ready[0], nil
	}
	return s.unused()
}

// unused returns an unused slot. The caller holds the lock.
func (s *Slots) unused() (uint32, error) {
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

// PutBack takes back a slot from Take, if no guard with this slot was attached. It does not know
// whether one is loaded.
func (s *Slots) PutBack(slot uint32) {
	s.drop(slot)
	s.free(slot)
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

// Leave marks a slot whose entry is gone from the journal. Sweep frees it when its guard is gone as
// well.
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

// free frees a slot whose guard and kernel entries are gone.
func (s *Slots) free(slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, slot)
	delete(s.used, slot)
}

// fill loads guards for a parent until there are stockSize, or ctx ends. It does
// nothing while another call is loading.
func (s *Slots) fill(ctx context.Context, parent int) error {
	if !s.filling.TryLock() {
		return nil
	}
	defer s.filling.Unlock()
	for ctx.Err() == nil {
		slot, err := s.missing(parent)
		if err != nil || slot == 0 {
			return err
		}
		if err := s.prepare(enforce.Guard{Slot: slot, Segment: parent}); err != nil {
			s.free(slot)
			return fmt.Errorf("load guards ahead: %w", err)
		}
		s.loaded(parent, slot)
	}
	return nil
}

// loaded adds a slot to the stock of a parent.
func (s *Slots) loaded(parent int, slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready[parent] = append(s.ready[parent], slot)
}

// missing returns an unused slot for the stock of a parent, 0 if the stock is full.
func (s *Slots) missing(parent int) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready[parent]) >= stockSize {
		return 0, nil
	}
	return s.unused()
}

// sweepStock drops the guards loaded for parents that no longer exist. A parent that is
// created again has another index.
func (s *Slots) sweepStock(exists func(parent int) bool) {
	for _, slot := range s.withdraw(exists) {
		s.PutBack(slot)
	}
}

func (s *Slots) withdraw(exists func(parent int) bool) (all []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for parent, ready := range s.ready {
		if !exists(parent) {
			all = append(all, ready...)
			delete(s.ready, parent)
		}
	}
	return all
}
