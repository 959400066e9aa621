// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"iter"
	"slices"
	"testing"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/tools/events"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

// The addresses have the token 5.
func TestAnAgentReportsOnceThatTheStoreWentBackBehindItsTokens(t *testing.T) {
	for _, row := range []struct {
		name             string
		held             int
		at               []uint64
		events, caughtUp int
	}{
		{"the store is where the token was given", 2, []uint64{5}, 0, 0},
		{"the store is behind", 2, []uint64{4}, 1, 0},
		{"no pod holds an address", 0, []uint64{4}, 0, 0},
		{"it stays behind", 2, []uint64{3, 4}, 1, 0},
		{"it goes back a second time", 2, []uint64{3, 6, 4}, 2, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			ahead, caughtUp := 0, 0
			r := NewWentBack(WentBackOptions{
				Reporter: event.Reporter{Node: "n1", Events: recorder, Log: testr.New(t)},
				Bound:    holding(row.held), CaughtUp: func() { caughtUp++ }, TokensAhead: func(n int) { ahead = n },
			})
			for _, live := range row.at {
				r.StoreIsAt(live)
			}
			check.Must(t, len(recorder.Events) == row.events && caughtUp == row.caughtUp,
				"%d events, caught up %d times, want %d and %d", len(recorder.Events), caughtUp, row.events, row.caughtUp)
			check.Equal(t, ahead, row.held*min(1, row.events), "tokens ahead:")
			if row.events > 0 {
				check.Says(t, <-recorder.Events, "StoreWentBack", "2 addresses")
			}
		})
	}
}

// holding is the journal of a node that holds n addresses.
func holding(n int) func() iter.Seq[*attachment.Entry] {
	return func() iter.Seq[*attachment.Entry] {
		return slices.Values(slices.Repeat([]*attachment.Entry{{Addresses: []attachment.Address{{Token: 5}}}}, n))
	}
}
