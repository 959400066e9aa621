package holder

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/bpf"
)

// lateGuard keeps a guard from enforcing until it is let go.
type lateGuard struct {
	Kernel
	enforce chan struct{}
}

func (k lateGuard) StageGuard(g bpf.Guard) error {
	<-k.enforce
	return k.Kernel.StageGuard(g)
}

func TestNothingIsProbedInstalledOrAnsweredBeforeTheGuardEnforces(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	late := lateGuard{r.Kernel, make(chan struct{})}
	r.Kernel = late
	answered := make(chan error, 1)
	web := r.pod("web", "u1")
	go func() {
		_, err := r.Add(t.Context(), web)
		answered <- err
	}()
	r.eventually("the lease is created meanwhile", func() bool { return slices.Contains(r.names(), "10.0.0.2 Bound") })
	if _, installed, _ := r.kernel.Lease(key("10.0.0.2")); installed || r.wire.took("probe 10.0.0.2") || len(answered) > 0 {
		t.Error("the ADD went on without its guard")
	}
	close(late.enforce)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestAnInterfaceThatGoesDuringItsADDLeavesNothing(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.kernel.unplug(web.NetNS, web.Interface)
	if _, err := r.Add(t.Context(), web); !errors.Is(err, bpf.ErrNoDevice) {
		t.Errorf("got %v", err)
	}
	r.want()
	if left := r.Journal.All(); len(left) > 0 {
		t.Errorf("journal %v", left)
	}
}

func TestNothingIsWrittenForAnInterfaceWhoseSegmentCannotBeOpened(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	r.OpenSegment = func(int) (Segment, error) { return nil, bpf.ErrNoDevice }
	if _, err := r.Add(t.Context(), r.pod("web", "u1")); !errors.Is(err, bpf.ErrNoDevice) || !strings.Contains(err.Error(), "eth1") {
		t.Errorf("got %v", err)
	}
	if n := r.api.calls["create"]; n > 0 {
		t.Errorf("%d leases were created", n)
	}
	if left := r.Journal.All(); len(left) > 0 {
		t.Errorf("journal %v", left)
	}
}

func TestAnADDFailsWhoseObserverCannotBePutBack(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	r.wire.observe = bpf.ErrNoDevice
	if _, err := r.Add(t.Context(), r.pod("web", "u1")); !errors.Is(err, bpf.ErrNoDevice) {
		t.Errorf("got %v", err)
	}
	if len(r.wire.did) > 0 {
		t.Errorf("unobserved: %v", r.wire.did)
	}
	r.want()
	if left := r.Journal.All(); len(left) > 0 {
		t.Errorf("journal %v", left)
	}
}

// countedPins counts the guards that could not be pinned.
type countedPins struct {
	Metrics
	n *atomic.Int32
}

func (c countedPins) PinFailed() { c.n.Add(1) }

func TestAGuardIsPinnedAfterTheAnswerAndAgainUntilItHolds(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	r.kernel.pinFails = errors.New("no")
	failures := countedPins{Metrics: r.Metrics, n: new(atomic.Int32)}
	r.Metrics = failures
	web := r.pod("web", "u1")
	r.add(web)
	r.Wait()
	if !r.speaks(web, "10.0.0.2") {
		t.Error("the pod is mute")
	}
	if text := <-r.events.Events; !strings.Contains(text, "GuardNotPinned") {
		t.Errorf("event %q", text)
	}
	if err := r.pinAgain(); err == nil {
		t.Error("it was not tried again")
	}
	if n := failures.n.Load(); n != 2 {
		t.Errorf("%d failures were counted, want 2", n)
	}
	r.kernel.pinFails = nil
	if err := r.pinAgain(); err != nil || !r.kernel.pinned[r.slotOf(web)] {
		t.Errorf("pinned %v, %v", r.kernel.pinned, err)
	}
}

func TestANewAgentFinishesTheMoveOfEveryGuardOfItsBoot(t *testing.T) {
	for _, phase := range []journal.Phase{journal.Intent, journal.Bound, journal.Releasing} {
		for _, session := range []string{thisSession, "node-1/boot-0"} {
			r := newRig(t)
			e := journal.Entry{
				ContainerID: "c-u1", Interface: "eth0", NetNS: "/netns/c-u1", Phase: phase, Session: session,
				Slot: 7, Parent: "eth1", ParentIndex: parentIndex, MAC: "02:00:00:00:00:01",
			}
			if err := r.Journal.Put(e); err != nil {
				t.Fatal(err)
			}
			if err := r.kernel.StageGuard(guardOf(&e)); err != nil {
				t.Fatal(err)
			}
			r.restart()
			ours := session == thisSession
			if r.kernel.pinned[7] != ours || r.kernel.isDead(7) != (ours && phase != journal.Bound) {
				t.Errorf("%s of %s: pinned %v, dead %v", phase, session, r.kernel.pinned[7], r.kernel.isDead(7))
			}
		}
	}
}
