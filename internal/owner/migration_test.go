// SPDX-License-Identifier: Apache-2.0

package owner_test

import (
	"testing"

	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

func TestTheSourceOfAMigrationHandsOverOnceItIsPausedForGood(t *testing.T) {
	for _, row := range []struct {
		name  string
		state owner.Migration
		want  bool
	}{
		{"there is none", owner.Migration{}, false},
		{"the memory is copied", owner.Migration{Source: "a", Target: "b", Mode: "PreCopy"}, false},
		{"the source is paused, and may go on", owner.Migration{Source: "a", Target: "b", Mode: "Paused"}, false},
		{"the machine runs on the target, memory follows", owner.Migration{Source: "a", Target: "b", Mode: "PostCopy"}, true},
		{"the domain is active on the target", owner.Migration{Source: "a", Target: "b", TargetReady: true}, true},
		{"an older KubeVirt names no source", owner.Migration{Target: "b", TargetReady: true}, true},
		{"it is completed", owner.Migration{Source: "a", Target: "b", Completed: true}, true},
		{"it has failed", owner.Migration{Source: "a", Target: "b", Mode: "PostCopy", Completed: true, Failed: true}, false},
		{"it leads to another pod", owner.Migration{Source: "a", Target: "c", TargetReady: true}, false},
		{"it came from another pod", owner.Migration{Source: "c", Target: "b", TargetReady: true}, false},
	} {
		got, why := row.state.HandsOver("a", "b")
		check.That(t, got == row.want && why != "", "%s: %v (%s), want %v", row.name, got, why, row.want)
	}
	got, _ := (owner.Migration{Source: "a", Target: "a", Completed: true}).HandsOver("a", "a")
	check.That(t, !got, "a holder hands over to itself")
}
