// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"testing"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/fakenode"
)

// A foreign host takes the address of a pod while its sandbox is dead. Only a name insists on the
// address; any other pod would wait for that host for good.
func TestAForeignHostOnAKeptAddressKeepsNoPodFromItsNextSandbox(t *testing.T) {
	for name, die := range map[string]func(*fakenode.Node, agentapi.AddRequest){
		"DEL, then ADD": (*fakenode.Node).SandboxDies,
		"ADD, then DEL": func(*fakenode.Node, agentapi.AddRequest) {},
		"a boot": func(r *fakenode.Node, _ agentapi.AddRequest) {
			r.Life = "node-1/boot-2"
			r.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			web := r.Pod("web", "u1", controlledBy("ReplicaSet"))
			r.MustAdd(web)
			die(r, web)
			r.Wire.Verdicts[fakenode.Two] = segment.Answered
			young := next(web, "c2")
			if got := r.MustAdd(young); got[0] != "10.0.0.3" {
				t.Errorf("got %v", got)
			}
			r.SandboxDies(web)
			l := r.Lease("10.0.0.2", v1alpha1.StateQuarantined)
			if s := l.Spec; s.Reason != v1alpha1.ReasonConflict || s.ConflictMAC() != fakenode.Stranger.String() || s.Holder != nil {
				t.Errorf("lease %+v", s)
			}
			if name == "a boot" && (l.Spec.Previous == nil || l.Spec.Previous.PodUID != "u1") {
				t.Errorf("R1: the holder of the last boot is not proven, and the lease forgets it: %+v", l.Spec)
			}
			r.HoldsWhatTheJournalSays(young)
		})
	}
}
