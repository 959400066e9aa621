// SPDX-License-Identifier: Apache-2.0

package guards_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fenceline/fenceline/agent/guards"
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
	if !r.Speaks(web, "10.0.0.2") {
		t.Error("the pod is mute")
	}
	if text := <-r.Recorder.Events; !strings.Contains(text, "GuardNotPinned") {
		t.Errorf("event %q", text)
	}
	if err := r.Guards.PinAgain(); err == nil {
		t.Error("it was not tried again")
	}
	if n := failures.n.Load(); n != 2 {
		t.Errorf("%d failures were counted, want 2", n)
	}
	r.Kernel.PinFails = nil
	if err := r.Guards.PinAgain(); err != nil || !r.Kernel.Pinned[r.SlotOf(web)] {
		t.Errorf("pinned %v, %v", r.Kernel.Pinned, err)
	}
}
