package holder

import (
	"context"
	"testing"
)

// The server answers what it has begun after the agent was told to end.
func TestAnADDInTheAgentsLastMomentsIsClaimedAndAnnounced(t *testing.T) {
	r := newRig(t, warmed(v4("10.0.0.2-10.0.0.9")))
	r.warmLease("10.0.0.7", true)
	ended, end := context.WithCancel(t.Context())
	end()
	r.background = ended
	r.add(r.pod("web-0", "u1"))
	r.Wait()
	for _, what := range []string{"claim 10.0.0.7", "announce 10.0.0.7"} {
		if !r.wire.took(what) {
			t.Errorf("no %s: %v", what, r.wire.did)
		}
	}
}
