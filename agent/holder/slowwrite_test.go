// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/test/fakenode"
)

// R1: a write takes as long as the API server does, and somebody may speak for the address meanwhile.
func TestADoubtThatArisesDuringASlowWriteCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
		r.WarmLease("10.0.0.7", true)
		r.WarmLease("10.0.0.8", true)
		r.API.After = func(string) error {
			r.API.After = nil
			synctest.Wait() // the kernel has been asked
			r.Warm.Hear("10.0.0.7", segment.DoubtSpoken)
			time.Sleep(time.Second)
			return nil
		}
		if got := r.MustAdd(r.Pod("web-0", "u1")); !slices.Equal(got, []string{"10.0.0.8"}) {
			t.Errorf("got %v", got)
		}
		r.Wait()
		r.Want("10.0.0.7 Quarantined", "10.0.0.8 Bound")
	})
}
