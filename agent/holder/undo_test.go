package holder

import (
	"testing"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// R4: who speaks for it may be a pod whose record was lost, and who follows its
// name to a Retained address claims before it probes.
func TestAnAddressThatIsUndoneBeforeItsProofIsNotKeptForAName(t *testing.T) {
	for name, c := range map[string]struct {
		setup func(*rig)
		// updates are written before the API server goes away.
		updates int
	}{
		"on demand": {func(r *rig) { r.wire.answers[two] = stranger }, 0},
		"Warm": {func(r *rig) {
			l := r.warmLease("10.0.0.2", true)
			r.warm.doubts = map[string]segment.Doubt{l.Name: segment.DoubtSpoken}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, warmed(v4("10.0.0.2")))
			c.setup(r)
			left := c.updates
			r.api.before = func(verb, _ string) error {
				if verb != "update" {
					return nil
				}
				if left--; left >= 0 {
					return nil
				}
				return &netError{}
			}
			r.refused(agentapi.CodeTryAgainLater, r.pod("web-0", "u1", ofStatefulSet))
			r.api.before = nil
			r.settle()
			r.want()
		})
	}
}

// The pod's record is lost, and no other address is left: an ADD gets its lease,
// meets the pod, and cannot write that down.
func TestTheUndoOfAnADDEndsNoPodWhoseRecordWasLost(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	old := r.pod("old", "u1")
	r.add(old)
	r.api.drop(held("10.0.0.2"))
	r.api.before = func(verb, _ string) error {
		if verb == "update" {
			return &netError{}
		}
		return nil
	}
	r.refused(agentapi.CodeTryAgainLater, r.pod("new", "u2"))
	r.api.before = nil
	r.settle()
	r.want("10.0.0.2 Bound")
	if !r.speaks(old, "10.0.0.2") {
		t.Error("the living pod is mute")
	}
	r.holdsWhatTheJournalSays(old)
}

// The other interface's record is lost, and this one's ADD asked for its address.
func TestTheUndoOfAnADDEndsNoOtherInterfaceOfThePod(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	eth0 := r.pod("web", "u1")
	r.add(eth0)
	r.api.drop(held("10.0.0.2"))
	r.api.before = func(verb, _ string) error {
		if verb == "update" {
			return &netError{}
		}
		return nil
	}
	eth1 := eth0
	eth1.Interface = "eth1"
	r.refused(agentapi.CodeTryAgainLater, eth1)
	r.api.before = nil
	r.settle()
	r.want("10.0.0.2 Bound")
	if !r.speaks(eth0, "10.0.0.2") {
		t.Error("the living interface is mute")
	}
	r.holdsWhatTheJournalSays(eth0)
}

// The take-over by a newer sandbox is undone, which frees the address, and the next
// sandbox has another one by the time the first is resumed.
func TestAPodIsNotDeletedForWhatAnOlderSandboxHasLost(t *testing.T) {
	for name, happens := range map[string]func(*rig){
		"to nobody":           func(*rig) {},
		"to another node's":   func(r *rig) { r.api.put(held("10.0.0.2")) },
		"and set aside since": func(r *rig) { r.api.put(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone))) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2-10.0.0.9"))
			older := r.pod("web", "u1")
			r.add(older)
			failed, newer := older, older
			failed.ContainerID, failed.NetNS = "c-failed", "/netns/c-failed"
			newer.ContainerID, newer.NetNS = "c-newer", "/netns/c-newer"
			r.wire.onClaim = func(c segment.Claim) { r.kernel.claimed(key("10.0.0.2"), c.Token+1) }
			r.refused(agentapi.CodeTryAgainLater, failed)
			r.del(failed)
			r.wire.onClaim = nil
			happens(r)
			got := r.add(newer)
			r.settle()
			if _, podExists := r.api.objects[keyFor(podOf("web"), clientObjectKey("web"))]; !podExists {
				t.Error("the pod is deleted")
			}
			if !r.speaks(newer, got[0]) {
				t.Error("the newer sandbox is mute")
			}
			r.holdsWhatTheJournalSays(newer)
			if _, there := r.Journal.Get(older.ContainerID, older.Interface); there {
				t.Error("the older sandbox stays in the journal")
			}
		})
	}
}
