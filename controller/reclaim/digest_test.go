package reclaim

import (
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestDigest(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon())
	d := newDigest(clock)
	blue := cause{"blue", "n1", v1alpha1.ReasonPodGone}
	red := cause{"red", "n2", v1alpha1.ReasonNodeUnreachable}
	for i := range toldAtOnce {
		if !d.take(blue) {
			t.Fatalf("reclaim %d of the first %d has no event of its own", i+1, toldAtOnce)
		}
	}
	for _, c := range []cause{blue, red, blue} {
		if d.take(c) {
			t.Error("a reclaim beyond them has one")
		}
	}
	if got, want := d.sums(), map[cause]int{blue: 2, red: 1}; !maps.Equal(got, want) {
		t.Errorf("sums %v, want %v", got, want)
	}
	if got := d.sums(); len(got) > 0 {
		t.Errorf("told twice: %v", got)
	}
	clock.Step(time.Second)
	for range toldPerSecond {
		if !d.take(red) {
			t.Error("a second later none has")
		}
	}
	if d.take(red) {
		t.Errorf("more than %d have a second later", toldPerSecond)
	}
}

// TestAReclaimHasAnEvent: of its own, or of many together. Metric and audit line
// do not depend on it.
func TestAReclaimHasAnEvent(t *testing.T) {
	for name, row := range map[string]struct {
		pace stopped
		want string
	}{
		"of its own":       {stopped{true}, "Warning AddressReclaimed address 10.6.0.10 of pool blue was taken from pod default/web-0"},
		"of many together": {stopped{false}, "Warning AddressesReclaimed addresses of pool blue taken from holders on node n1, without events of their own: 1 (PodGone)"},
	} {
		t.Run(name, func(t *testing.T) {
			world := objects(poolObject(), leaseObject(), agentOn("n1"))
			b := between(t, world, world)
			b.reconciler.digest.pace = row.pace
			for range 2 { // seen as gone, then due
				if _, err := b.look(); err != nil {
					t.Fatal(err)
				}
				b.clock.Step(time.Minute)
			}
			b.reconciler.tellSumsOnce()
			recorder := b.reconciler.Events.(*events.FakeRecorder)
			close(recorder.Events)
			var got []string
			for e := range recorder.Events {
				got = append(got, e)
			}
			if len(got) != 1 || !strings.HasPrefix(got[0], row.want) {
				t.Errorf("events %q, want %q", got, row.want)
			}
		})
	}
}

// stopped is a pace at one answer.
type stopped struct{ accepts bool }

func (s stopped) TryAccept() bool { return s.accepts }
func (s stopped) Stop()           {}
func (s stopped) QPS() float32    { return 0 }
