// SPDX-License-Identifier: Apache-2.0

package guards_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestASweepWaitsForTheDevice(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	slot := r.SlotOf(web)
	r.MustDel(web)
	check.OK(t, r.Guards.Sweep())
	_, installed, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
	check.That(t, installed && !r.FreeSlots()[slot], "the dead slot was swept while its device may speak")
	// Another agent over the same pins waits for it as well.
	r.Restart()
	check.OK(t, r.Guards.Sweep())
	check.That(t, !r.FreeSlots()[slot], "the slot was forgotten by the restart")
	r.Kernel.Unplug(web.NetNS, web.Interface)
	check.OK(t, r.Guards.Sweep())
	_, installed, _ = r.Kernel.Lease(fakenode.Key("10.0.0.2"))
	check.That(t, !installed && r.FreeSlots()[slot], "the slot was not given back")
}

// A VF is back on its node, and the next pod of any plugin may get it at once.
func TestASweepComesAtOnceWhenAVFIsBack(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	slot := r.SlotOf(web)
	r.MustDel(web)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Guards.Run(ctx) }()
	r.Kernel.Unplug(web.NetNS, web.Interface)
	r.Guards.Wake()
	const soon = 2 * time.Second // the next sweep would come in five
	check.Becomes(t, soon, "a free slot", func() bool { return r.FreeSlots()[slot] })
	cancel()
	check.OK(t, <-ended)
}

// A new pod would be as mute as the old one, whose address the kernel may have
// under another slot, or watch for a Warm lease.
func TestAKilledSlotIsNobodysUntilItIsSwept(t *testing.T) {
	r, old := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	slot := r.SlotOf(old)
	r.MustDel(old)
	check.OK(t, r.Kernel.Remove(fakenode.Key("10.0.0.2")))
	r.Kernel.Unplug(old.NetNS, old.Interface)
	r.Restart()
	young := r.Pod("new", "u2")
	addr := r.MustAdd(young)[0]
	check.That(t, r.SlotOf(young) != slot && r.Speaks(young, addr), "the pod got slot %d, which was killed", slot)
	check.OK(t, r.Guards.Sweep())
	dead, _ := r.Kernel.Dead(slot)
	check.That(t, !dead && r.FreeSlots()[slot], "the slot was not given back")
}

// A burst of them would leave no slot to anybody until the agent is started again.
func TestASlotWhoseDeviceWentBeforeItsEntryIsGivenBack(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	swept, unguarded := r.Pod("swept", "u1"), r.Pod("unguarded", "u2")
	r.MustAdd(swept)
	r.Kernel.Unplug(swept.NetNS, swept.Interface)
	check.OK(t, r.Guards.Sweep())
	r.MustDel(swept)
	r.Kernel.Unplug(unguarded.NetNS, unguarded.Interface)
	check.Is(t, check.Err(r.Add(t.Context(), unguarded)), bpf.ErrNoDevice, "got")
	check.OK(t, r.Guards.Sweep())
	check.That(t, len(r.FreeSlots()) >= int(bpf.MaxSlot), "%d slots are free", len(r.FreeSlots()))
}

// Its device may live: the process that knew has ended, and its pin never came.
func TestASlotThatWasKilledStaysDeadWhereNobodyKnowsItsDevice(t *testing.T) {
	r, old := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	slot := r.SlotOf(old)
	r.MustDel(old)
	delete(r.Kernel.Guards, slot)
	r.Kernel.Lost[slot] = true
	r.Restart()
	check.OK(t, r.Guards.Sweep())
	dead, _ := r.Kernel.Dead(slot)
	check.That(t, dead && !r.FreeSlots()[slot], "dead %v, kept from others %v", dead, !r.FreeSlots()[slot])
}

// Recovery makes the entry of a living pod again from the lease in the kernel, once the API server answers.
func TestASweepLeavesTheLeasesOfAGuardThatNobodyKnows(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	slot := r.SlotOf(web)
	delete(r.Kernel.Guards, slot)
	r.Kernel.Lost[slot] = true
	r.Guards.Slots.Leave(slot)
	check.OK(t, r.Guards.Sweep())
	_, installed, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
	check.That(t, installed, "the kernel has lost the lease")
}

func TestASweepLeavesTheLeaseOfANewHolder(t *testing.T) {
	r, old := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.MustDel(old)
	r.Kernel.Unplug(old.NetNS, old.Interface)
	stale, _ := r.Kernel.All()
	young := r.Pod("new", "u2")
	r.MustAdd(young)
	check.OK(t, r.Guards.SweepSlot(1, stale))
	check.That(t, r.Speaks(young, "10.0.0.2"), "the new holder's lease was swept")
}

func TestAGuardThatTheJournalForgotCostsNoADD(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.Kernel.Guards[1] = "/netns/elsewhere eth0"
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	check.That(t, r.Speaks(web, "10.0.0.2"), "the pod is mute")
}

// unswept has a guard that it cannot sweep.
type unswept struct{ guards.KernelGuards }

func (unswept) Sweep() ([]uint32, error) { return nil, errors.New("a pin cannot be read") }

func TestAGuardThatCannotBeSweptKeepsNoOtherSlot(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	slot := check.Value(r.Guards.Slots.Take())(t)
	r.Guards.Slots.Leave(slot)
	r.Guards.Kernel.Guards = unswept{r.Guards.Kernel.Guards}
	err := r.Guards.Sweep()
	check.That(t, err != nil && r.FreeSlots()[slot], "kept %v, %v", !r.FreeSlots()[slot], err)
}

// countedPins counts the guards that could not be pinned.
type countedPins struct {
	guards.Metrics
	n *atomic.Int32
}

func (c countedPins) PinFailed() { c.n.Add(1) }

func TestAGuardIsPinnedAfterTheAnswerAndAgainUntilItHolds(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.Kernel.PinFails = errors.New("no")
	failures := countedPins{Metrics: r.Guards.Metrics, n: new(atomic.Int32)}
	r.Guards.Metrics = failures
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	r.After.Wait()
	check.That(t, r.Speaks(web, "10.0.0.2"), "the pod is mute")
	check.Says(t, <-r.Recorder.Events, "GuardNotPinned")
	check.That(t, r.Guards.PinAgain() != nil, "it was not tried again")
	check.Equal(t, failures.n.Load(), 2, "failures:")
	r.Kernel.PinFails = nil
	check.OK(t, r.Guards.PinAgain())
	check.That(t, r.Kernel.Pinned[r.SlotOf(web)], "pinned %v", r.Kernel.Pinned)
}

// A VF is moved to another network namespace before its guard is pinned, or without tcx. No observer sees its frames.
func TestAVFWithoutItsGuardIsToBeOff(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	find := r.FindLink
	r.FindLink = func(netns, ifname string) (pod.Interface, error) {
		i, err := find(netns, ifname)
		i.Device = "0000:03:10.1"
		return i, err
	}
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	r.After.Wait()
	judge := func(when string, off bool, acks, acksOff bpf.LeaseFlags) {
		t.Helper()
		check.OK(t, r.Guards.Repair())
		e, _ := r.Attachments.Get(web.ContainerID, web.Interface)
		is := check.Value(r.Guards.Silenced(&e))(t)
		check.That(t, is == off && r.Guards.Alone(&e) == off, "%s: it is to be off %v, only its PF silences it %v", when, is, r.Guards.Alone(&e))
		for _, step := range []struct {
			shown bool
			want  bpf.LeaseFlags
		}{{true, acksOff}, {false, acks}} {
			check.OK(t, r.Guards.Leases.SetHolderSilent(&e, step.shown))
			l, _, err := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
			check.That(t, err == nil && l.Flags == step.want, "%s, off at its PF %v: flags %b, want %b, %v", when, step.shown, l.Flags, step.want, err)
		}
	}
	judge("with its guard", false, bpf.FlagVF, bpf.FlagVF)
	r.Kernel.Unplug(web.NetNS, web.Interface)
	judge("moved", true, bpf.FlagVF|bpf.FlagUnguarded, 0)
	r.Kernel.Plug(web.NetNS, web.Interface)
	judge("moved back", false, bpf.FlagVF, bpf.FlagVF)
	check.Says(t, <-r.Recorder.Events, "GuardRestored")
	r.Kernel.Unplug(web.NetNS, web.Interface)
	judge("moved again", true, bpf.FlagVF|bpf.FlagUnguarded, 0)
	r.MustDel(web)
	check.OK(t, r.Guards.Sweep())
	_, installed, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
	check.That(t, !installed, "its lease is left")
}

func TestAHostLinkIsGuardedByTheSlotOfItsPod(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	e, _ := r.Attachments.Get(web.ContainerID, web.Interface)
	check.OK(t, r.Guards.GuardLink(&e, "flh0"))
	guarded, err := r.Guards.LinkGuarded(&e, "flh0")
	check.That(t, err == nil && guarded, "guarded %v, %v", guarded, err)
	guarded, err = r.Guards.LinkGuarded(&e, "flh1")
	check.That(t, err == nil && !guarded, "another one is guarded %v, %v", guarded, err)
	e.Slot++
	check.Is(t, r.Guards.GuardLink(&e, "flh1"), bpf.ErrNoGuard, "got")
}

// A pod that lost only its own interface could use the addresses of the next holder of its slot.
func TestASlotIsNotGivenBackWhileItsHostLinkLives(t *testing.T) {
	for name, killed := range map[string]bool{"after a DEL": true, "of an entry that is gone": false} {
		t.Run(name, func(t *testing.T) {
			r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			e, _ := r.Attachments.Get(web.ContainerID, web.Interface)
			check.OK(t, r.Guards.GuardLink(&e, "flh0"))
			if killed {
				r.MustDel(web)
			} else {
				r.Guards.Slots.Leave(e.Slot)
			}
			r.Kernel.Unplug(web.NetNS, web.Interface)
			for _, lives := range []bool{true, false} {
				if !lives {
					r.Kernel.UnplugLink("flh0")
				}
				check.OK(t, r.Guards.Sweep())
				free := r.FreeSlots()[e.Slot]
				check.That(t, free != lives, "free %v while the host link lives %v", free, lives)
			}
		})
	}
}
