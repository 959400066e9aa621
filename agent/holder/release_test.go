package holder

import (
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

func TestR6ADELFencesThenFrees(t *testing.T) {
	r := newRig(t, dual()...)
	web := r.pod("web", "u1")
	r.add(web)
	slot := r.slotOf(web)
	r.death.did = nil
	r.del(web)
	want := []string{"kill", "journal Releasing", "delete 10.0.0.2", "delete fd00-0000-0000-0000-0000-0000-0000-0002", "journal Remove"}
	if !slices.Equal(r.death.did, want) {
		t.Errorf("effects %v, want %v", r.death.did, want)
	}
	if !r.kernel.isDead(slot) {
		t.Error("the slot lives")
	}
	r.want()
	r.del(web) // nothing is left: no error
}

func TestADELOfAStatefulSetPodKeepsItsAddress(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	web := r.pod("web-0", "u1", ofStatefulSet)
	r.add(web)
	r.del(web)
	l := r.lease("10.0.0.2", v1alpha1.StateRetained)
	if l.Spec.Holder.Pod != "web-0" || l.Spec.Holder.ContainerID != "" {
		t.Errorf("lease %+v", l.Spec.Holder)
	}
}

func TestADELIsCarriedOutOnceTheAPIServerIsBack(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	slot := r.slotOf(web)
	r.api.setAway(true)
	r.del(web)
	if !r.kernel.isDead(slot) {
		t.Error("the slot lives")
	}
	if e, ok := r.Journal.Get(web.ContainerID, web.Interface); !ok || e.Phase != journal.Releasing {
		t.Errorf("journal %v", e)
	}
	r.restart()
	if left, err := r.resume(t.Context(), askTimeout); left != 0 || err != nil {
		t.Errorf("nothing was pending, got %d, %v", left, err)
	}
	r.api.setAway(false)
	r.want("10.0.0.2 Bound")
	r.settle()
	r.want()
}

func TestADELLeavesALeaseThatIsSomebodyElsesNow(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.IPLeaseSpec){
		"quarantined":           quarantined(v1alpha1.ReasonPodTerminating),
		"bound on another node": func(*v1alpha1.IPLeaseSpec) {},
		"another container's":   func(s *v1alpha1.IPLeaseSpec) { s.NodeName, s.Session = thisNode, thisSession },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			web := r.pod("web", "u1")
			r.add(web)
			r.api.drop(held("10.0.0.2"))
			r.api.put(held("10.0.0.2", change))
			want := r.names()
			r.del(web)
			r.want(want...)
			if len(r.Journal.All()) != 0 {
				t.Errorf("journal %v", r.Journal.All())
			}
		})
	}
}

func TestR8ALeaseOfAnotherSessionIsSetAside(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	r.session = "node-1/boot-2"
	r.restart()
	r.settle()
	l := r.lease("10.0.0.2", v1alpha1.StateQuarantined)
	if p := l.Spec.Previous; p == nil || p.Node != thisNode || p.Session != thisSession {
		t.Errorf("previous %+v", l.Spec.Previous)
	}
	if _, dead, err := r.KillHolder(t.Context(), "10.0.0.2"); dead || err != nil {
		t.Errorf("another session's holder counts as dead: %v, %v", dead, err)
	}
}

func TestKillHolderProvesAHolderOfThisSessionDead(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	l := r.lease("10.0.0.2", v1alpha1.StateBound)
	if _, dead, _ := r.KillHolder(t.Context(), l.Name); dead || r.kernel.isDead(r.slotOf(web)) {
		t.Fatal("a Bound lease's holder was killed")
	}
	quarantined(v1alpha1.ReasonPodTerminating)(&l.Spec)
	r.api.put(l)
	if _, dead, err := r.KillHolder(t.Context(), l.Name); !dead || err != nil || !r.kernel.isDead(r.slotOf(web)) {
		t.Errorf("dead %v, %v", dead, err)
	}
}

// A lease that was set aside because a stranger answered names nobody: the
// stranger may be this node's own pod, whose record was lost (R4).
func TestKillHolderSparesAPodThatIsTheStrangerOfAConflict(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	r.api.drop(held("10.0.0.2"))
	r.api.put(held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
		s.State, s.Reason, s.Holder, s.NodeName = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, nil, thisNode
		s.Conflict = &v1alpha1.Conflict{MAC: macOf(web.NetNS).String(), Source: "probe"}
	}))
	if _, dead, err := r.KillHolder(t.Context(), "10.0.0.2"); dead || err != nil || !r.speaks(web, "10.0.0.2") {
		t.Errorf("dead %v, %v, speaks %v", dead, err, r.speaks(web, "10.0.0.2"))
	}
}

func TestGCReleasesWhatTheRuntimeOfANetworkDoesNotKnow(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	valid, lost, other := r.pod("a", "u1"), r.pod("b", "u2"), r.pod("c", "u3")
	other.Network.Name = "other"
	for _, request := range []agentapi.AddRequest{valid, lost, other} {
		r.add(request)
	}
	if err := r.GC(t.Context(), agentapi.GCRequest{Network: "underlay", Valid: []agentapi.Attachment{valid.Attachment}}); err != nil {
		t.Fatal(err)
	}
	r.want("10.0.0.2 Bound", "10.0.0.4 Bound")
}

func TestCHECKTellsWhatIsNotHeld(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	check := func() error { return r.Check(t.Context(), agentapi.CheckRequest{Attachment: web.Attachment}) }
	if err := check(); err == nil {
		t.Error("an attachment without addresses is held")
	}
	r.add(web)
	if err := check(); err != nil {
		t.Error(err)
	}
	r.kernel.claimed(key("10.0.0.2"), 1<<40)
	if err := check(); err == nil || !strings.Contains(err.Error(), "fenced") {
		t.Errorf("fenced: %v", err)
	}
	delete(r.kernel.claims, key("10.0.0.2"))
	if err := r.kernel.DetachGuard(r.slotOf(web)); err != nil {
		t.Fatal(err)
	}
	if err := check(); err == nil || !strings.Contains(err.Error(), "guarded") {
		t.Errorf("unguarded: %v", err)
	}
}
