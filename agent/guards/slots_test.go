// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/bpf/enforce"
	"github.com/fenceline/fenceline/test/check"
)

func TestASlotComesBackAsLateAsPossible(t *testing.T) {
	s := newSlots(nil, nil)
	first, _ := s.Take(0)
	s.Leave(first)
	s.free(first)
	for range bpf.MaxSlot - 1 {
		slot, err := s.Take(0)
		check.Must(t, err == nil && slot != first, "took %d, %v", slot, err)
	}
	slot, err := s.Take(0)
	check.Must(t, slot == first && err == nil, "took %d, %v", slot, err)
	if _, err := s.Take(0); !errors.Is(err, errNoSlot) {
		t.Fatalf("got %v", err)
	}
	s.Leave(7)
	if _, err := s.Take(0); !errors.Is(err, errNoSlot) {
		t.Errorf("a slot whose guard may be there was given away: %v", err)
	}
	s.free(7)
	if slot, _ := s.Take(0); slot != 7 {
		t.Errorf("took %d", slot)
	}
}

func TestASlotFoundAfterARestartIsNotGivenAway(t *testing.T) {
	for _, found := range []uint32{1, 5, bpf.MaxSlot} {
		s := newSlots(nil, nil)
		s.Keep(found)
		for range bpf.MaxSlot - 1 {
			slot, err := s.Take(0)
			check.Must(t, err == nil && slot != found, "took %d, %v", slot, err)
		}
	}
}

// newStock returns slots that note what they load.
func newStock() (*Slots, *[]enforce.Guard) {
	loaded := &[]enforce.Guard{}
	return newSlots(func(g enforce.Guard) error {
		*loaded = append(*loaded, g)
		return nil
	}, func(uint32) {}), loaded
}

func TestASlotIsTakenWhoseGuardIsLoaded(t *testing.T) {
	s, loaded := newStock()
	take := func(parent int) uint32 {
		t.Helper()
		slot := check.Value(s.Take(parent))(t)
		return slot
	}
	if slot := take(1); slot != 1 || len(*loaded) != 0 {
		t.Errorf("without a stock: slot %d, loaded %v", slot, *loaded)
	}
	for _, parent := range []int{1, 2, 1} {
		check.OK(t, s.fill(t.Context(), parent))
	}
	check.Must(t, len(*loaded) == 2*stockSize, "loaded %d guards for two parents, want %d each", len(*loaded), stockSize)
	for _, parent := range []int{2, 1} {
		for range stockSize {
			if slot := take(parent); !slices.Contains(*loaded, enforce.Guard{Slot: slot, Segment: parent}) {
				t.Errorf("slot %d on parent %d, loaded %v", slot, parent, *loaded)
			}
		}
	}
	check.Equal(t, take(1), 2*stockSize+2, "more than the stock: slot")
	if err := s.fill(t.Context(), 1); err != nil || len(*loaded) != 3*stockSize {
		t.Errorf("loaded %d, %v", len(*loaded), err)
	}
}

func TestASlotThatIsPutBackIsNotInTheStock(t *testing.T) {
	s, loaded := newStock()
	slot := check.Value(s.Take(1))(t)
	s.PutBack(slot)
	check.OK(t, s.fill(t.Context(), 1))
	check.Equal(t, len(*loaded), stockSize, "loaded guards:")
	check.Equal(t, len(s.used), stockSize, "slots in use:")
}

func TestTheStockOfAParentThatIsGoneIsGivenBack(t *testing.T) {
	s, loaded := newStock()
	var dropped []uint32
	s.drop = func(slot uint32) { dropped = append(dropped, slot) }
	for _, parent := range []int{1, 2} {
		check.OK(t, s.fill(t.Context(), parent))
	}
	for range 2 {
		s.sweepStock(func(parent int) bool { return parent == 2 })
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
	check.That(t, len(s.used) == stockSize, "%d slots are in use, want %d", len(s.used), stockSize)
	slot, err := s.Take(2)
	check.That(t, err == nil && slices.Contains(*loaded, enforce.Guard{Slot: slot, Segment: 2}), "slot %d, %v", slot, err)
}

func TestASlotWhoseGuardCannotBeLoadedIsNotLost(t *testing.T) {
	s, _ := newStock()
	fails := errors.New("no memory")
	s.prepare = func(enforce.Guard) error { return fails }
	check.Is(t, s.fill(t.Context(), 1), fails, "got")
	check.That(t, len(s.used) == 0, "used %v", s.used)
}

func TestAStockIsFilledByOneAtATimeAndUntilTheEnd(t *testing.T) {
	s, loaded := newStock()
	ctx, end := context.WithCancel(t.Context())
	s.prepare = func(g enforce.Guard) error {
		check.Is(t, s.fill(t.Context(), 1), nil, "got")
		end()
		*loaded = append(*loaded, g)
		return nil
	}
	if err := s.fill(ctx, 1); err != nil || len(*loaded) != 1 {
		t.Errorf("loaded %v, %v", *loaded, err)
	}
}
