// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestNothingIsAnnouncedOfAnInterfaceThatWentBeforeTheAnswer(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	if _, err := r.Holders.Add(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if r.Wire.Took("announce 10.0.0.2") {
		t.Error("it is announced before the plugin has its answer")
	}
	r.MustDel(web)
	r.Answered(web.Attachment)
	r.Wait()
	if r.Wire.Took("announce 10.0.0.2") || len(r.Kernel.Pinned) > 0 {
		t.Error("it is announced or pinned after its DEL")
	}
}

func TestWhatIsLeftAfterAnAnswerIsDoneOnce(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	r.Wait()
	r.Answered(web.Attachment)
	r.Wait()
	if n := r.Wire.Times("announce 10.0.0.2"); n != 1 {
		t.Errorf("announced %d times", n)
	}
}

func TestAPinWaitsForADDsThatAreUnderWay(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2", "10.0.0.3"))
	web := r.Pod("web", "u1")
	if _, err := r.Holders.Add(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	late := lateGuard{r.Guards.Kernel, make(chan struct{})}
	r.Guards.Kernel = late
	answered := make(chan error, 1)
	go func() {
		_, err := r.Holders.Add(t.Context(), r.Pod("api", "u2"))
		answered <- err
	}()
	r.Eventually("the second ADD is under way", func() bool { return slices.Contains(r.Names(), "10.0.0.3 Bound") })
	r.Answered(web.Attachment)
	r.WaitForADDs(5 * holder.PinDelay)
	if r.Kernel.IsPinned(r.SlotOf(web)) {
		t.Error("a guard is pinned while an ADD is under way")
	}
	close(late.enforce)
	check.OK(t, <-answered)
	r.Wait()
	if !r.Kernel.IsPinned(r.SlotOf(web)) {
		t.Error("the guard is not pinned when no ADD is under way any more")
	}
}

// The server answers what it has begun after the agent was told to end.
func TestAnADDInTheAgentsLastMomentsIsClaimedAndAnnounced(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
	r.WarmLease("10.0.0.7", true)
	ended, end := context.WithCancel(t.Context())
	end()
	r.SetBackground(ended)
	r.MustAdd(r.Pod("web-0", "u1"))
	r.Wait()
	for _, what := range []string{"claim 10.0.0.7", "announce 10.0.0.7"} {
		if !r.Wire.Took(what) {
			t.Errorf("no %s: %v", what, r.Wire.Did)
		}
	}
}
