package holder

import (
	"errors"
	"sync"
	"testing"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

func ofThisNode(s *v1alpha1.IPLeaseSpec) { s.Previous.Node, s.Previous.Session = thisNode, thisSession }

func TestAVerifierKillsASlotThatOnlyTheJournalKnows(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	if err := r.kernel.RemoveLease(key("10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	r.replace(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone), ofThisNode))
	l, dead, err := r.KillHolder(t.Context(), "10.0.0.2")
	if err != nil || !dead || l.Name != "10.0.0.2" {
		t.Errorf("lease %v, dead %v, %v", l, dead, err)
	}
	if !r.kernel.isDead(r.slotOf(web)) {
		t.Error("the holder is said to be dead, and may speak")
	}
}

func TestAVerifierKillsNobodyElse(t *testing.T) {
	two := journal.Address{Addr: two, Pool: "v4", LeaseName: "10.0.0.2", Token: 50}
	underWay, other := two, two
	underWay.Token = 0
	other.LeaseName = "storage.10.0.0.2"
	const slot = 77
	for name, e := range map[string]journal.Entry{
		"a take-over under way":        {Session: thisSession, Addresses: []journal.Address{underWay}},
		"a pod of an earlier boot":     {Session: "node-1/boot-0", Addresses: []journal.Address{two}},
		"a pod of another network":     {Session: thisSession, Addresses: []journal.Address{other}},
		"a pod without this address":   {Session: thisSession},
		"a guard of another's address": {Session: thisSession, Addresses: []journal.Address{{Addr: two.Addr.Next(), LeaseName: "10.0.0.3", Token: 50}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			r.api.put(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone)))
			e.ContainerID, e.Interface, e.Phase, e.Slot = "c", "eth0", journal.Intent, slot
			if err := r.book.Put(e); err != nil {
				t.Fatal(err)
			}
			if _, dead, err := r.KillHolder(t.Context(), "10.0.0.2"); err != nil || dead {
				t.Errorf("dead %v, %v", dead, err)
			}
			if r.kernel.isDead(slot) {
				t.Error("killed")
			}
		})
	}
}

func TestAVerifierKillsTheADDOfTheVeryHolder(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	r.api.put(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone)))
	const slot = 77
	e := journal.Entry{
		Session: thisSession, ContainerID: "c0", Interface: "eth0", Phase: journal.Intent, Slot: slot,
		Addresses: []journal.Address{{Addr: two, Pool: "v4", LeaseName: "10.0.0.2"}},
	}
	if err := r.book.Put(e); err != nil {
		t.Fatal(err)
	}
	r.overtaken.begin(attachmentOf(&e))
	if _, _, err := r.KillHolder(t.Context(), "10.0.0.2"); err != nil {
		t.Fatal(err)
	}
	if !r.kernel.isDead(slot) || !r.overtaken.has(attachmentOf(&e)) {
		t.Error("the ADD goes on, and is about to speak")
	}
}

func TestAnADDThatAVerifierHasOvertakenIsNotAnswered(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.wire.onClaim = func(segment.Claim) { r.overtaken.add(attachment{web.ContainerID, web.Interface}) }
	_, err := r.Add(t.Context(), web)
	if e, typed := errors.AsType[*agentapi.Error](err); !typed || e.Code != agentapi.CodeTryAgainLater {
		t.Errorf("got %v", err)
	}
	r.want()
	r.wire.onClaim = nil
	r.add(web)
}

// The first family is bound, and its lease quarantined while the second is sought.
func TestAnADDWhoseFirstFamilyIsKilledMeanwhileIsNotAnswered(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"), pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2"))
	var once sync.Once
	r.wire.onClaim = func(c segment.Claim) {
		if !c.Addr.Is6() {
			return
		}
		once.Do(func() {
			l := r.api.leases()["10.0.0.2"]
			quarantined(v1alpha1.ReasonPodGone)(&l.Spec)
			r.replace(l)
			if _, _, err := r.KillHolder(t.Context(), "10.0.0.2"); err != nil {
				t.Error(err)
			}
		})
	}
	r.refused(agentapi.CodeTryAgainLater, r.pod("web", "u1"))
}

// What an earlier ADD has left, and the agent's death, is no word about this one.
func TestAnADDThatIsRepeatedAfterACrashIsNotOvertakenByItsOwnUndo(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	web := r.pod("web", "u1")
	r.death.before = "install 10.0.0.2"
	if _, err := r.Add(t.Context(), web); err == nil {
		t.Fatal("ADD succeeds")
	}
	r.restart()
	r.add(web)
}
