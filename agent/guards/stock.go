// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"context"
	"fmt"
	"sync"

	"github.com/fenceline/fenceline/bpf"
)

// stockSize is how many guards are loaded ahead for each parent that pods use. In a
// larger burst, the ADDs load the other guards themselves.
const stockSize = 8

// stock hands out slots whose guards are already loaded: the kernel's verifier takes
// tens of milliseconds for each. Safe for concurrent use.
type stock struct {
	slots   *slots
	prepare func(bpf.Guard) error
	drop    func(slot uint32)

	// filling is held while guards are loaded, so that one is loaded after the other.
	filling sync.Mutex

	mu    sync.Mutex
	ready map[int][]uint32
}

// take returns a slot for an interface on a parent.
func (s *stock) take(parent int) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := s.ready[parent]
	if len(ready) == 0 {
		return s.slots.take()
	}
	s.ready[parent] = ready[1:]
	return ready[0], nil
}

// fill loads guards for a parent until there are stockSize, or ctx ends. It does
// nothing while another call is loading.
func (s *stock) fill(ctx context.Context, parent int) error {
	if !s.filling.TryLock() {
		return nil
	}
	defer s.filling.Unlock()
	for ctx.Err() == nil && s.missing(parent) {
		slot, err := s.slots.take()
		if err != nil {
			return err
		}
		if err := s.prepare(bpf.Guard{Slot: slot, Segment: parent}); err != nil {
			s.slots.free(slot)
			return fmt.Errorf("load guards ahead: %w", err)
		}
		s.add(parent, slot)
	}
	return nil
}

func (s *stock) missing(parent int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready[parent]) < stockSize
}

func (s *stock) add(parent int, slot uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready == nil {
		s.ready = map[int][]uint32{}
	}
	s.ready[parent] = append(s.ready[parent], slot)
}

// sweep drops the guards loaded for parents that no longer exist. A parent that is
// created again has another index.
func (s *stock) sweep(exists func(parent int) bool) {
	for _, slot := range s.withdraw(exists) {
		s.drop(slot)
		s.slots.free(slot)
	}
}

func (s *stock) withdraw(exists func(parent int) bool) (all []uint32) {
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
