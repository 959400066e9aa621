// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"testing"

	"github.com/fenceline/fenceline/test/fakenode"
)

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
