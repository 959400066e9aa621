// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestR6ADELFencesThenFrees(t *testing.T) {
	r := fakenode.New(t, fakenode.Dual()...)
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	slot := r.SlotOf(web)
	r.Death.Did = nil
	r.MustDel(web)
	want := []string{"kill", "journal Releasing", "delete 10.0.0.2", "delete fd00-0000-0000-0000-0000-0000-0000-0002", "journal Remove"}
	if !slices.Equal(r.Death.Did, want) {
		t.Errorf("effects %v, want %v", r.Death.Did, want)
	}
	if !r.Kernel.IsDead(slot) {
		t.Error("the slot lives")
	}
	r.Want()
	r.MustDel(web) // nothing is left: no error
}

// stuckLinks are host links that cannot be removed for the first times.
type stuckLinks struct {
	fakenode.NoHostLinks
	times int
}

func (s *stuckLinks) Remove(*journal.Entry) error {
	if s.times > 0 {
		s.times--
		return errors.New("delete link: resource busy")
	}
	return nil
}

func TestAnEntryStaysUntilItsHostLinkIsRemoved(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	r.HostLinks = &stuckLinks{times: 2}
	r.MustDel(web)
	if e, ok := r.Journal.Get(web.ContainerID, web.Interface); !ok || e.Phase != journal.Releasing {
		t.Errorf("journal %v", e)
	}
	r.Want() // the address is free: a dead slot speaks for nobody
	if left, err := r.Recovery.Resume(t.Context(), node.AskTimeout); left != 0 || err != nil {
		t.Errorf("resume: %d left, %v", left, err)
	}
	if _, ok := r.Journal.Get(web.ContainerID, web.Interface); ok {
		t.Error("the entry is still there")
	}
}

func TestADELOfAStatefulSetPodKeepsItsAddress(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
	r.MustAdd(web)
	r.MustDel(web)
	l := r.Lease("10.0.0.2", v1alpha1.StateRetained)
	if l.Spec.Holder.Pod != "web-0" || l.Spec.Holder.ContainerID != "" {
		t.Errorf("lease %+v", l.Spec.Holder)
	}
}

func TestADELIsCarriedOutOnceTheAPIServerIsBack(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	slot := r.SlotOf(web)
	r.API.SetAway(true)
	r.MustDel(web)
	if !r.Kernel.IsDead(slot) {
		t.Error("the slot lives")
	}
	if e, ok := r.Journal.Get(web.ContainerID, web.Interface); !ok || e.Phase != journal.Releasing {
		t.Errorf("journal %v", e)
	}
	r.Restart()
	if left, err := r.Recovery.Resume(t.Context(), node.AskTimeout); left != 0 || err != nil {
		t.Errorf("nothing was pending, got %d, %v", left, err)
	}
	r.API.SetAway(false)
	r.Want("10.0.0.2 Bound")
	r.Settle()
	r.Want()
}

func TestADELLeavesALeaseThatIsSomebodyElsesNow(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.IPLeaseSpec){
		"quarantined":           fakenode.Quarantined(v1alpha1.ReasonPodTerminating),
		"bound on another node": func(*v1alpha1.IPLeaseSpec) {},
		"another container's":   func(s *v1alpha1.IPLeaseSpec) { s.NodeName, s.Session = fakenode.ThisNode, fakenode.ThisSession },
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := r.Pod("web", "u1")
			r.MustAdd(web)
			r.API.Drop(fakenode.Held("10.0.0.2"))
			r.API.Put(fakenode.Held("10.0.0.2", change))
			want := r.Names()
			r.MustDel(web)
			r.Want(want...)
			if len(r.Journal.All()) != 0 {
				t.Errorf("journal %v", r.Journal.All())
			}
		})
	}
}

func TestR8ALeaseOfAnotherSessionIsSetAside(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	r.Life = "node-1/boot-2"
	r.Restart()
	r.Settle()
	l := r.Lease("10.0.0.2", v1alpha1.StateQuarantined)
	if p := l.Spec.Previous; p == nil || p.Node != fakenode.ThisNode || p.Session != fakenode.ThisSession {
		t.Errorf("previous %+v", l.Spec.Previous)
	}
	if _, dead, err := r.KillHolder(t.Context(), "10.0.0.2"); dead || err != nil {
		t.Errorf("another session's holder counts as dead: %v, %v", dead, err)
	}
}

func TestKillHolderProvesAHolderOfThisSessionDead(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	if _, dead, _ := r.KillHolder(t.Context(), l.Name); dead || r.Kernel.IsDead(r.SlotOf(web)) {
		t.Fatal("a Bound lease's holder was killed")
	}
	fakenode.Quarantined(v1alpha1.ReasonPodTerminating)(&l.Spec)
	r.API.Put(l)
	if _, dead, err := r.KillHolder(t.Context(), l.Name); !dead || err != nil || !r.Kernel.IsDead(r.SlotOf(web)) {
		t.Errorf("dead %v, %v", dead, err)
	}
}

// A lease that was set aside because a stranger answered names nobody: the
// stranger may be this node's own pod, whose record was lost (R4).
func TestKillHolderSparesAPodThatIsTheStrangerOfAConflict(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	r.API.Drop(fakenode.Held("10.0.0.2"))
	r.API.Put(fakenode.Held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
		s.State, s.Reason, s.Holder, s.NodeName = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, nil, fakenode.ThisNode
		s.Conflict = &v1alpha1.Conflict{MAC: fakenode.MacOf(web.NetNS).String(), Source: "probe"}
	}))
	if _, dead, err := r.KillHolder(t.Context(), "10.0.0.2"); dead || err != nil || !r.Speaks(web, "10.0.0.2") {
		t.Errorf("dead %v, %v, speaks %v", dead, err, r.Speaks(web, "10.0.0.2"))
	}
}

func TestGCReleasesWhatTheRuntimeOfANetworkDoesNotKnow(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	valid, lost, other := r.Pod("a", "u1"), r.Pod("b", "u2"), r.Pod("c", "u3")
	other.Network.Name = "other"
	for _, request := range []agentapi.AddRequest{valid, lost, other} {
		r.MustAdd(request)
	}
	r.Terminate(lost)
	if err := r.GC(t.Context(), agentapi.GCRequest{Network: "underlay", Valid: []agentapi.Attachment{valid.Attachment}}); err != nil {
		t.Fatal(err)
	}
	r.Want("10.0.0.2 Bound", "10.0.0.4 Bound")
}

func TestCHECKTellsWhatIsNotHeld(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	check := func() error { return r.Check(t.Context(), agentapi.CheckRequest{Attachment: web.Attachment}) }
	if err := check(); err == nil {
		t.Error("an attachment without addresses is held")
	}
	r.MustAdd(web)
	if err := check(); err != nil {
		t.Error(err)
	}
	r.Kernel.Claimed(fakenode.Key("10.0.0.2"), 1<<40)
	if err := check(); err == nil || !strings.Contains(err.Error(), "fenced") {
		t.Errorf("fenced: %v", err)
	}
	delete(r.Kernel.Claims, fakenode.Key("10.0.0.2"))
	if err := r.Kernel.DetachGuard(r.SlotOf(web)); err != nil {
		t.Fatal(err)
	}
	if err := check(); err == nil || !strings.Contains(err.Error(), "guarded") {
		t.Errorf("unguarded: %v", err)
	}
}
