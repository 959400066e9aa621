package main

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/events"
)

// newAgent's addresses have the token 5.
func TestAnAgentTellsOnceThatTheStoreWentBackBehindItsTokens(t *testing.T) {
	for _, row := range []struct {
		name string
		held int
		at   []uint64
		want int // events
	}{
		{"the store is where the token was given", 2, []uint64{5}, 0},
		{"the store is behind", 2, []uint64{4}, 1},
		{"nobody holds an address", 0, []uint64{4}, 0},
		{"it stays behind", 2, []uint64{3, 4}, 1},
		{"it goes back a second time", 2, []uint64{3, 6, 4}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := newAgent(t, row.held)
			for _, live := range row.at {
				a.storeIsAt(live)
			}
			recorded := a.events.(*events.FakeRecorder).Events
			if len(recorded) != row.want {
				t.Fatalf("%d events, want %d", len(recorded), row.want)
			}
			if row.want > 0 {
				if text := <-recorded; !strings.Contains(text, "StoreWentBack") || !strings.Contains(text, "2 addresses") {
					t.Errorf("told %q", text)
				}
			}
		})
	}
}
