// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"slices"
	"testing"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/test/fakenode"
)

// An agent that dies between the take-over's write and the end of the older
// sandbox must end it before the address is free, whichever it resumes first.
func TestTheUndoOfATakeOverEndsTheOlderSandboxFirst(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	older := r.Pod("web", "u1")
	r.MustAdd(older)
	newer := older
	newer.ContainerID, newer.NetNS = "c-newer", "/netns/c-newer"
	r.Death.Did, r.Death.Before = nil, "kill"
	if err := fakenode.TryAdd(r, newer); err == nil || !slices.Contains(r.Death.Did, "update 10.0.0.2") {
		t.Fatalf("died after %v, %v", r.Death.Did, err)
	}
	r.Restart()
	if err := r.Recovery.ResumeEntry(t.Context(), newer.Attachment, holder.AskTimeout); err != nil {
		t.Error(err)
	}
	r.Want("10.0.0.2 Retained") // the rig has watched that nobody may speak for it
}
