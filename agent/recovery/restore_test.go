// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"testing"

	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestANewAgentFinishesTheMoveOfEveryGuardOfItsBoot(t *testing.T) {
	for _, phase := range []journal.Phase{journal.Intent, journal.Bound, journal.Releasing} {
		for _, session := range []string{fakenode.ThisSession, "node-1/boot-0"} {
			r := fakenode.New(t)
			e := journal.Entry{
				ContainerID: "c-u1", Interface: "eth0", NetNS: "/netns/c-u1", Phase: phase, Session: session,
				Slot: 7, Parent: "eth1", ParentIndex: fakenode.ParentIndex, MAC: "02:00:00:00:00:01",
			}
			check.OK(t, r.Journal.Put(e))
			check.OK(t, r.Kernel.StageGuard(guards.Of(&e)))
			r.Restart()
			ours := session == fakenode.ThisSession
			if r.Kernel.Pinned[7] != ours || r.Kernel.IsDead(7) != (ours && phase != journal.Bound) {
				t.Errorf("%s of %s: pinned %v, dead %v", phase, session, r.Kernel.Pinned[7], r.Kernel.IsDead(7))
			}
		}
	}
}
