// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

func TestASlotComesBackAsLateAsPossible(t *testing.T) {
	s := slots{next: FirstSlot}
	first, _ := s.take()
	s.leave(first)
	s.free(first)
	for range bpf.MaxSlot - 1 {
		slot, err := s.take()
		check.Must(t, err == nil && slot != first, "took %d, %v", slot, err)
	}
	slot, err := s.take()
	check.Must(t, slot == first && err == nil, "took %d, %v", slot, err)
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
			slot, err := s.take()
			check.Must(t, err == nil && slot != found, "took %d, %v", slot, err)
		}
	}
}

// newStock returns a stock that notes what it loads.
func newStock() (*stock, *[]bpf.Guard) {
	loaded := &[]bpf.Guard{}
	return &stock{slots: &slots{next: FirstSlot}, prepare: func(g bpf.Guard) error {
		*loaded = append(*loaded, g)
		return nil
	}}, loaded
}

func TestASlotIsTakenWhoseGuardIsLoaded(t *testing.T) {
	s, loaded := newStock()
	take := func(parent int) uint32 {
		t.Helper()
		slot := check.Value(s.take(parent))(t)
		return slot
	}
	if slot := take(1); slot != 1 || len(*loaded) != 0 {
		t.Errorf("without a stock: slot %d, loaded %v", slot, *loaded)
	}
	for _, parent := range []int{1, 2, 1} {
		check.OK(t, s.fill(t.Context(), parent))
	}
	if len(*loaded) != 2*stockSize {
		t.Fatalf("loaded %d guards for two parents, want %d each", len(*loaded), stockSize)
	}
	for _, parent := range []int{2, 1} {
		for range stockSize {
			if slot := take(parent); !slices.Contains(*loaded, bpf.Guard{Slot: slot, Segment: parent}) {
				t.Errorf("slot %d on parent %d, loaded %v", slot, parent, *loaded)
			}
		}
	}
	check.Equal(t, take(1), 2*stockSize+2, "more than the stock: slot")
	if err := s.fill(t.Context(), 1); err != nil || len(*loaded) != 3*stockSize {
		t.Errorf("loaded %d, %v", len(*loaded), err)
	}
}

func TestTheStockOfAParentThatIsGoneIsGivenBack(t *testing.T) {
	s, loaded := newStock()
	var dropped []uint32
	s.drop = func(slot uint32) { dropped = append(dropped, slot) }
	for _, parent := range []int{1, 2} {
		check.OK(t, s.fill(t.Context(), parent))
	}
	for range 2 {
		s.sweep(func(parent int) bool { return parent == 2 })
	}
	var want []uint32
	for _, g := range *loaded {
		if g.Segment == 1 {
			want = append(want, g.Slot)
		}
	}
	if slices.Sort(dropped); !slices.Equal(dropped, want) {
		t.Errorf("dropped %v, want %v", dropped, want)
	}
	check.That(t, len(s.slots.used) == stockSize, "%d slots are in use, want %d", len(s.slots.used), stockSize)
	slot, err := s.take(2)
	check.That(t, err == nil && slices.Contains(*loaded, bpf.Guard{Slot: slot, Segment: 2}), "slot %d, %v", slot, err)
}

func TestASlotWhoseGuardCannotBeLoadedIsNotLost(t *testing.T) {
	s, _ := newStock()
	fails := errors.New("no memory")
	s.prepare = func(bpf.Guard) error { return fails }
	check.Is(t, s.fill(t.Context(), 1), fails, "got")
	check.That(t, len(s.slots.used) == 0, "used %v", s.slots.used)
}

func TestAStockIsFilledByOneAtATimeAndUntilTheEnd(t *testing.T) {
	s, loaded := newStock()
	ctx, end := context.WithCancel(t.Context())
	s.prepare = func(g bpf.Guard) error {
		check.Is(t, s.fill(t.Context(), 1), nil, "got")
		end()
		*loaded = append(*loaded, g)
		return nil
	}
	if err := s.fill(ctx, 1); err != nil || len(*loaded) != 1 {
		t.Errorf("loaded %v, %v", *loaded, err)
	}
}
