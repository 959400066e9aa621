// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestR6ADELFencesThenFrees(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.Dual()...)
	slot := r.SlotOf(web)
	r.Death.Did = nil
	r.MustDel(web)
	want := []string{"kill", "journal Releasing", "delete 10.0.0.2", "delete fd00-0000-0000-0000-0000-0000-0000-0002", "journal Remove"}
	check.List(t, r.Death.Did, want, "effects")
	check.That(t, r.Kernel.IsDead(slot), "the slot lives")
	r.Want()
	r.MustDel(web) // nothing is left: no error
}

// stuckLinks are host links that cannot be removed for the first times.
type stuckLinks struct {
	fakenode.NoHostLinks
	times int
}

func (s *stuckLinks) Remove(*attachment.Entry) error {
	if s.times--; s.times >= 0 {
		return errors.New("delete link: resource busy")
	}
	return nil
}

func TestAnEntryStaysUntilItsHostLinkIsRemoved(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.HostLinks = &stuckLinks{times: 2}
	r.MustDel(web)
	e, ok := r.Attachments.Get(web.ContainerID, web.Interface)
	check.That(t, ok && e.Phase == attachment.Releasing, "journal %v", e)
	r.Want() // the address is free: a dead slot speaks for nobody
	left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
	check.That(t, left == 0 && err == nil, "resume: %d left, %v", left, err)
	_, ok = r.Attachments.Get(web.ContainerID, web.Interface)
	check.That(t, !ok, "the entry is still there")
}

func TestADELIsCarriedOutOnceTheAPIServerIsBack(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	slot := r.SlotOf(web)
	r.API.SetAway(true)
	r.MustDel(web)
	check.That(t, r.Kernel.IsDead(slot), "the slot lives")
	e, ok := r.Attachments.Get(web.ContainerID, web.Interface)
	check.That(t, ok && e.Phase == attachment.Releasing, "journal %v", e)
	r.Restart()
	left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
	check.That(t, left == 0 && err == nil, "nothing was pending, got %d, %v", left, err)
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
			r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
			r.API.Drop(fakenode.Held("10.0.0.2"))
			r.API.Put(fakenode.Held("10.0.0.2", change))
			want := r.Names()
			r.MustDel(web)
			r.Want(want...)
			check.None(t, r.Attachments.All(), "journal")
		})
	}
}

func TestR8ALeaseOfAnotherSessionIsSetAside(t *testing.T) {
	r, _ := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.Life = "node-1/boot-2"
	r.Restart()
	r.Settle()
	p := r.Lease("10.0.0.2", v1alpha1.StateQuarantined).Spec.Previous
	check.That(t, p != nil && p.Node == fakenode.ThisNode && p.Session == fakenode.ThisSession, "previous %+v", p)
	_, dead, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
	check.That(t, !dead && err == nil, "another session's holder counts as dead: %v, %v", dead, err)
}

func TestKillHolderProvesAHolderOfThisSessionDead(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	_, dead, _ := r.Releaser.KillHolder(t.Context(), l.Name)
	check.Must(t, !dead && !r.Kernel.IsDead(r.SlotOf(web)), "a Bound lease's holder was killed")
	fakenode.Quarantined(v1alpha1.ReasonPodTerminating)(&l.Spec)
	r.API.Put(l)
	_, dead, err := r.Releaser.KillHolder(t.Context(), l.Name)
	check.That(t, dead && err == nil && r.Kernel.IsDead(r.SlotOf(web)), "dead %v, %v", dead, err)
}

// A lease that was set aside because a stranger answered names nobody: the
// stranger may be this node's own pod, whose record was lost (R4).
func TestKillHolderSparesAPodThatIsTheStrangerOfAConflict(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.API.Drop(fakenode.Held("10.0.0.2"))
	r.API.Put(fakenode.Held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
		s.State, s.Reason, s.Holder, s.NodeName = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, nil, fakenode.ThisNode
		s.Conflict = &v1alpha1.Conflict{MAC: fakenode.MacOf(web.NetNS).String(), Source: "probe"}
	}))
	_, dead, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
	check.That(t, !dead && err == nil && r.Speaks(web, "10.0.0.2"), "dead %v, %v, speaks %v", dead, err, r.Speaks(web, "10.0.0.2"))
}

func TestGCReleasesWhatTheRuntimeOfANetworkDoesNotKnow(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	valid, lost, other, finished := r.Pod("a", "u1"), r.Pod("b", "u2"), r.Pod("c", "u3"), r.Pod("d", "u4")
	other.Network.Name = "other"
	old := r.Pod("e", "u5")
	for _, request := range []agentapi.AddRequest{valid, lost, other, finished, old} {
		r.MustAdd(request)
	}
	r.API.Drop(fakenode.PodOf("b"))
	r.API.ChangePod("d", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	slot, young := r.SlotOf(old), next(old, "e2")
	check.List(t, r.MustAdd(young), []string{"10.0.0.6"}, "the next sandbox has")
	check.OK(t, r.GC(t.Context(), agentapi.GCRequest{Network: "underlay", Valid: []agentapi.Attachment{valid.Attachment, young.Attachment}}))
	r.Want("10.0.0.2 Bound", "10.0.0.4 Bound", "10.0.0.6 Bound")
	check.That(t, r.Kernel.IsDead(slot), "the slot of the old sandbox lives")
}

// Two networks have one name: the GC of each names the attachments of its own pods only.
func TestGCOfANetworkOfTheSameNameEndsNoPodThatLives(t *testing.T) {
	for name, change := range map[string]func(*fakenode.Node){
		"it runs": func(*fakenode.Node) {},
		"it ends": func(r *fakenode.Node) {
			r.API.ChangePod("web", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
		},
		"it is not known": func(r *fakenode.Node) { r.Cache = deafReader{r.Cache} },
		"its interface has another name": func(r *fakenode.Node) {
			r.FindLink = func(string, string) (pod.Interface, error) { return pod.Interface{}, pod.ErrNoInterface }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
			r.After.Wait()
			change(r)
			check.OK(t, r.GC(t.Context(), agentapi.GCRequest{Network: "underlay", Valid: []agentapi.Attachment{}}))
			check.Must(t, r.Speaks(web, "10.0.0.2") && len(r.Recorder.Events) > 0, "the pod is mute, or nobody is told")
			check.Says(t, <-r.Recorder.Events, "GCIncomplete", "shop/web", "give each network a name of its own")
		})
	}
}

func TestCHECKTellsWhatIsNotHeld(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	checks := func() error { return r.Check(t.Context(), agentapi.CheckRequest{Attachment: web.Attachment}) }
	check.That(t, checks() != nil, "an attachment without addresses is held")
	r.MustAdd(web)
	check.OK(t, checks())
	r.Kernel.Claimed(fakenode.Key("10.0.0.2"), 1<<40)
	check.Says(t, checks(), "fenced")
	delete(r.Kernel.Claims, fakenode.Key("10.0.0.2"))
	check.OK(t, r.Kernel.Detach(r.SlotOf(web)))
	check.Says(t, checks(), "guarded")
}

// sandboxReady is the kubelet's word about the sandbox of a pod.
func sandboxReady(is corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: is}}
	}
}

func TestARemovedInterfaceGivesItsAddressBack(t *testing.T) {
	for _, row := range []struct {
		name string
		// meanwhile is what happens after the DEL, before the kubelet's word counts.
		meanwhile func(*fakenode.Node)
		ready     corev1.ConditionStatus
		want      []string
	}{
		{"the sandbox lives", func(*fakenode.Node) {}, corev1.ConditionTrue, nil},
		{"the sandbox lives, and the kernel has taken the interface away", func(r *fakenode.Node) {
			r.FindLink = func(string, string) (pod.Interface, error) { return pod.Interface{}, pod.ErrNoInterface }
		}, corev1.ConditionTrue, nil},
		{"the sandbox lives, and a device without a parent has the name", func(r *fakenode.Node) {
			r.FindLink = func(string, string) (pod.Interface, error) { return pod.Interface{}, pod.ErrNoParent }
		}, corev1.ConditionTrue, nil},
		{"the sandbox lives, and the agent restarts", (*fakenode.Node).Restart, corev1.ConditionTrue, nil},
		{"the end of the sandbox is held up", func(*fakenode.Node) {}, corev1.ConditionFalse, []string{"10.0.0.2 Retained"}},
		{"the pod ends", func(r *fakenode.Node) { r.API.Drop(fakenode.PodOf("web")) }, corev1.ConditionTrue, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := r.Pod("web", "u1", sandboxReady(row.ready))
			r.MustAdd(web)
			slot := r.SlotOf(web)
			check.OK(t, r.Del(t.Context(), fakenode.Del(web)))
			check.That(t, r.Kernel.IsDead(slot), "the slot lives")
			r.Want("10.0.0.2 Bound")
			row.meanwhile(r)
			r.Settle()
			r.Want(row.want...)
		})
	}
}

// deafReader cannot read pods.
type deafReader struct{ client.Reader }

func (d deafReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, pod := o.(*corev1.Pod); pod {
		return errors.New("nobody answers")
	}
	return d.Reader.Get(ctx, key, o, opts...)
}

func TestAnAddressIsKeptIfNothingTellsWhatHasEnded(t *testing.T) {
	for name, blind := range map[string]func(*fakenode.Node){
		"the namespace cannot be opened": func(r *fakenode.Node) {
			r.FindLink = func(string, string) (pod.Interface, error) { return pod.Interface{}, errors.New("too many open files") }
		},
		"the pod cannot be read":                func(r *fakenode.Node) { r.Releaser.Reader = deafReader{r.Reader} },
		"the kubelet does not know the sandbox": func(r *fakenode.Node) { r.API.ChangePod("web", func(p *corev1.Pod) { p.Status.Conditions = nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := r.Pod("web", "u1", sandboxReady(corev1.ConditionTrue))
			r.MustAdd(web)
			r.After.Wait()
			blind(r)
			check.OK(t, r.Del(t.Context(), fakenode.Del(web)))
			r.Settle()
			check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateRetained).Spec.Reason, v1alpha1.ReasonSandboxEnded, "reason")
		})
	}
}

// An interface is unplugged and plugged in again before it is known what has ended.
func TestAnInterfaceThatIsPluggedInAgainAtOnceHasItsAddress(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1", sandboxReady(corev1.ConditionTrue))
	before := r.MustAdd(web)
	check.OK(t, r.Del(t.Context(), fakenode.Del(web)))
	check.List(t, r.MustAdd(web), before, "has")
	r.Settle()
	r.HoldsWhatTheJournalSays(web)
}
