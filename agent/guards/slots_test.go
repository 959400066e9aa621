// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"testing"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

// SweepSlot sweeps one slot by what the kernel held a moment ago.
func (g *Guards) SweepSlot(slot uint32, leases map[bpf.Key]bpf.Lease) error {
	return g.sweepSlot(slot, leases)
}

func TestASlotComesBackAsLateAsPossible(t *testing.T) {
	s := newSlots()
	first, _ := s.Take()
	s.Leave(first)
	s.PutBack(first)
	for range bpf.MaxSlot - 1 {
		slot, err := s.Take()
		check.Must(t, err == nil && slot != first, "took %d, %v", slot, err)
	}
	slot, err := s.Take()
	check.Must(t, slot == first && err == nil, "took %d, %v", slot, err)
	check.Is(t, check.Err(s.Take()), errNoSlot, "got")
	s.Leave(7)
	check.Is(t, check.Err(s.Take()), errNoSlot, "a slot whose guard may be there was given away:")
	s.PutBack(7)
	check.Equal(t, check.Value(s.Take())(t), 7, "took")
}

func TestASlotFoundAfterARestartIsNotGivenAway(t *testing.T) {
	for _, found := range []uint32{1, 5, bpf.MaxSlot} {
		s := newSlots()
		s.Keep(found)
		for range bpf.MaxSlot - 1 {
			slot, err := s.Take()
			check.Must(t, err == nil && slot != found, "took %d, %v", slot, err)
		}
	}
}
