// SPDX-License-Identifier: Apache-2.0

package guards_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/bpf/enforce"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

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
	r.Wait()
	check.That(t, r.Speaks(web, "10.0.0.2"), "the pod is mute")
	text := <-r.Recorder.Events
	check.That(t, strings.Contains(text, "GuardNotPinned"), "event %q", text)
	check.That(t, r.Guards.PinAgain() != nil, "it was not tried again")
	n := failures.n.Load()
	check.That(t, n == 2, "%d failures were counted, want 2", n)
	r.Kernel.PinFails = nil
	if err := r.Guards.PinAgain(); err != nil || !r.Kernel.Pinned[r.SlotOf(web)] {
		t.Errorf("pinned %v, %v", r.Kernel.Pinned, err)
	}
}

func TestAHostLinkIsGuardedByTheSlotOfItsPod(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	e, _ := r.Journal.Get(web.ContainerID, web.Interface)
	check.OK(t, r.Guards.GuardLink(&e, "flh0"))
	guarded, err := r.Guards.LinkGuarded(&e, "flh0")
	check.That(t, err == nil && guarded, "guarded %v, %v", guarded, err)
	if guarded, err := r.Guards.LinkGuarded(&e, "flh1"); err != nil || guarded {
		t.Errorf("another one is guarded %v, %v", guarded, err)
	}
	e.Slot++
	check.Is(t, r.Guards.GuardLink(&e, "flh1"), enforce.ErrNoGuard, "got")
}

// A pod that lost only its own interface could use the addresses of the next holder of its slot.
func TestASlotIsNotGivenBackWhileItsHostLinkLives(t *testing.T) {
	for name, killed := range map[string]bool{"after a DEL": true, "of an entry that is gone": false} {
		t.Run(name, func(t *testing.T) {
			r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			e, _ := r.Journal.Get(web.ContainerID, web.Interface)
			check.OK(t, r.Guards.GuardLink(&e, "flh0"))
			if killed {
				r.MustDel(web)
			} else {
				r.Guards.Leave(e.Slot)
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
