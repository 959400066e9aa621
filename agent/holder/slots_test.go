package holder

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/bpf"
)

func TestASlotComesBackAsLateAsPossible(t *testing.T) {
	s := slots{next: firstSlot}
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
		s := slots{next: firstSlot}
		s.keep(found)
		for range bpf.MaxSlot - 1 {
			if slot, err := s.take(); err != nil || slot == found {
				t.Fatalf("took %d, %v", slot, err)
			}
		}
	}
}

func TestASweepWaitsForTheDevice(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	web := r.pod("web", "u1")
	r.add(web)
	slot := r.slotOf(web)
	r.del(web)
	sweep := func() {
		t.Helper()
		if err := r.Sweep(); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	if _, installed, _ := r.kernel.Lease(key("10.0.0.2")); !installed || !r.slots.used[slot] {
		t.Error("the dead slot was swept while its device may speak")
	}
	// Another agent over the same pins waits for it as well.
	r.restart()
	sweep()
	if !r.slots.used[slot] {
		t.Error("the slot was forgotten by the restart")
	}
	r.kernel.unplug(web.NetNS, web.Interface)
	sweep()
	if _, installed, _ := r.kernel.Lease(key("10.0.0.2")); installed || r.slots.used[slot] {
		t.Error("the slot was not given back")
	}
}

// A new pod would be as mute as the old one, whose address the kernel may have
// under another slot, or watch for a Warm lease.
func TestASlotThatWasKilledIsNobodysUntilItIsSweptAlsoAfterARestart(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	old := r.pod("old", "u1")
	r.add(old)
	slot := r.slotOf(old)
	r.del(old)
	if err := r.kernel.RemoveLease(key("10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	r.kernel.unplug(old.NetNS, old.Interface)
	r.restart()
	young := r.pod("new", "u2")
	addr := r.add(young)[0]
	if r.slotOf(young) == slot || !r.speaks(young, addr) {
		t.Errorf("the pod got slot %d, which was killed", slot)
	}
	if err := r.Sweep(); err != nil {
		t.Fatal(err)
	}
	if dead, _ := r.kernel.SlotDead(slot); dead || r.slots.used[slot] {
		t.Error("the slot was not given back")
	}
}

// A burst of them would leave no slot to anybody until the agent is started again.
func TestASlotWhoseDeviceWentBeforeItsEntryIsGivenBack(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	swept, unguarded := r.pod("swept", "u1"), r.pod("unguarded", "u2")
	r.add(swept)
	r.kernel.unplug(swept.NetNS, swept.Interface)
	if err := r.Sweep(); err != nil {
		t.Fatal(err)
	}
	r.del(swept)
	r.kernel.unplug(unguarded.NetNS, unguarded.Interface)
	if _, err := r.Add(t.Context(), unguarded); !errors.Is(err, bpf.ErrNoDevice) {
		t.Fatalf("got %v", err)
	}
	if err := r.Sweep(); err != nil || len(r.slots.used) > 0 {
		t.Errorf("slots %v are kept, %v", r.slots.used, err)
	}
}

// Its device may live: the process that knew has ended, and its pin never came.
func TestASlotThatWasKilledStaysDeadWhereNobodyKnowsItsDevice(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	old := r.pod("old", "u1")
	r.add(old)
	slot := r.slotOf(old)
	r.del(old)
	delete(r.kernel.guards, slot)
	r.kernel.lost[slot] = true
	r.restart()
	if err := r.Sweep(); err != nil {
		t.Fatal(err)
	}
	if dead, _ := r.kernel.SlotDead(slot); !dead || !r.slots.used[slot] {
		t.Errorf("dead %v, kept from others %v", dead, r.slots.used[slot])
	}
}

func TestASweepLeavesTheLeaseOfANewHolder(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	old := r.pod("old", "u1")
	r.add(old)
	r.del(old)
	r.kernel.unplug(old.NetNS, old.Interface)
	stale, _ := r.kernel.Leases()
	young := r.pod("new", "u2")
	r.add(young)
	if err := r.sweepSlot(1, stale); err != nil {
		t.Fatal(err)
	}
	if !r.speaks(young, "10.0.0.2") {
		t.Error("the new holder's lease was swept")
	}
}

func TestAGuardThatTheJournalForgotCostsNoADD(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	r.kernel.guards[1] = "/netns/elsewhere eth0"
	web := r.pod("web", "u1")
	r.add(web)
	if !r.speaks(web, "10.0.0.2") {
		t.Error("the pod is mute")
	}
}

func TestTheOrderOfAddressesOutlivesTheAgent(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	first := netip.MustParseAddr(r.add(r.pod("web", "u1"))[0])
	ended, end := context.WithCancel(t.Context())
	end()
	if err := r.RunSweeps(ended); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if last := r.book.Rotations()["v4"]; last != first {
		t.Errorf("goes on after %v, not after %s", last, first)
	}
}

// unswept has a guard that it cannot sweep.
type unswept struct{ Kernel }

func (unswept) SweepGuards() ([]uint32, error) { return nil, errors.New("a pin cannot be read") }

func TestAGuardThatCannotBeSweptKeepsNoOtherSlot(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	slot, err := r.slots.take()
	if err != nil {
		t.Fatal(err)
	}
	r.slots.leave(slot)
	r.Kernel = unswept{r.Kernel}
	if err := r.Sweep(); err == nil || r.slots.used[slot] {
		t.Errorf("kept %v, %v", r.slots.used[slot], err)
	}
}
