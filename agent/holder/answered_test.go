package holder

import (
	"slices"
	"testing"
)

func TestNothingIsAnnouncedOfAnInterfaceThatWentBeforeTheAnswer(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	if _, err := r.Holders.Add(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	if r.wire.took("announce 10.0.0.2") {
		t.Error("it is announced before the plugin has its answer")
	}
	r.del(web)
	r.Answered(web.Attachment)
	r.Wait()
	if r.wire.took("announce 10.0.0.2") || len(r.kernel.pinned) > 0 {
		t.Error("it is announced or pinned after its DEL")
	}
}

func TestWhatIsLeftAfterAnAnswerIsDoneOnce(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	r.Wait()
	r.Answered(web.Attachment)
	r.Wait()
	if n := r.wire.times("announce 10.0.0.2"); n != 1 {
		t.Errorf("announced %d times", n)
	}
}

func TestAPinWaitsForADDsThatAreUnderWay(t *testing.T) {
	r := newRig(t, v4("10.0.0.2", "10.0.0.3"))
	web := r.pod("web", "u1")
	if _, err := r.Holders.Add(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	late := lateGuard{r.Kernel, make(chan struct{})}
	r.Kernel = late
	answered := make(chan error, 1)
	go func() {
		_, err := r.Holders.Add(t.Context(), r.pod("api", "u2"))
		answered <- err
	}()
	r.eventually("the second ADD is under way", func() bool { return slices.Contains(r.names(), "10.0.0.3 Bound") })
	r.Answered(web.Attachment)
	r.waitForADDs(5 * pinDelay)
	if r.kernel.isPinned(r.slotOf(web)) {
		t.Error("a guard is pinned while an ADD is under way")
	}
	close(late.enforce)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	r.Wait()
	if !r.kernel.isPinned(r.slotOf(web)) {
		t.Error("the guard is not pinned when no ADD is under way any more")
	}
}
