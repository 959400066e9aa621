package holder

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceline/fenceline/agent/segment"
)

// R1: a write takes as long as the API server does, and somebody may speak for the address meanwhile.
func TestADoubtThatArisesDuringASlowWriteCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, warmed(v4("10.0.0.2-10.0.0.9")))
		r.warmLease("10.0.0.7", true)
		r.warmLease("10.0.0.8", true)
		r.api.after = func(string) error {
			r.api.after = nil
			synctest.Wait() // the kernel has been asked
			r.warm.hear("10.0.0.7", segment.DoubtSpoken)
			time.Sleep(time.Second)
			return nil
		}
		if got := r.add(r.pod("web-0", "u1")); !slices.Equal(got, []string{"10.0.0.8"}) {
			t.Errorf("got %v", got)
		}
		r.Wait()
		r.want("10.0.0.7 Quarantined", "10.0.0.8 Bound")
	})
}
