// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"errors"
	"testing"

	"github.com/fenceline/fenceline/bpf"
)

func TestASlotComesBackAsLateAsPossible(t *testing.T) {
	s := slots{next: FirstSlot}
	first, _ := s.take()
	s.leave(first)
	s.free(first)
	for range bpf.MaxSlot - 1 {
		if slot, err := s.take(); err != nil || slot == first {
			t.Fatalf("took %d, %v", slot, err)
		}
	}
	if slot, err := s.take(); slot != first || err != nil {
		t.Fatalf("took %d, %v", slot, err)
	}
	if _, err := s.take(); !errors.Is(err, errNoSlot) {
		t.Fatalf("got %v", err)
	}
	s.leave(7)
	if _, err := s.take(); !errors.Is(err, errNoSlot) {
		t.Errorf("a slot whose guard may be there was given away: %v", err)
	}
	s.free(7)
	if slot, _ := s.take(); slot != 7 {
		t.Errorf("took %d", slot)
	}
}

func TestASlotFoundAfterARestartIsNotGivenAway(t *testing.T) {
	for _, found := range []uint32{1, 5, bpf.MaxSlot} {
		s := slots{next: FirstSlot}
		s.keep(found)
		for range bpf.MaxSlot - 1 {
			if slot, err := s.take(); err != nil || slot == found {
				t.Fatalf("took %d, %v", slot, err)
			}
		}
	}
}
