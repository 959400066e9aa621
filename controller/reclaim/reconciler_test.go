// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

// TestNothingIsReclaimedOnOneObservation is R11: a cached view would do, and the API server contradicts.
func TestNothingIsReclaimedOnOneObservation(t *testing.T) {
	silent := node(corev1.ConditionUnknown)
	tainted := facts(nodeNotReady, nodeTainted).Node.Object
	retained := leaseObject(inState(v1alpha1.StateRetained), ownedByWeb)
	bound := objects(poolObject(), leaseObject())
	patient := poolThat(&v1alpha1.Reclaim{ExtraGrace: &v1alpha1.Duration{Duration: time.Hour}}, nil)
	later := objects(patient, leaseObject(), node(corev1.ConditionTrue))
	for _, row := range []struct {
		name         string
		cached, live []client.Object
	}{
		{"the pool is missing in the cache only", objects(leaseObject(), node(corev1.ConditionTrue)), later},
		{"the pool's extraGrace is short in the cache only", objects(bound, node(corev1.ConditionTrue)), later},
		{"the pod is missing in the cache only",
			objects(bound, node(corev1.ConditionTrue)),
			objects(bound, node(corev1.ConditionTrue), podObject())},
		{"the pod is missing in the cache only, its node is silent", objects(bound, silent), objects(bound, silent, podObject())},
		{"the pod is terminating in the cache only",
			objects(bound, node(corev1.ConditionTrue), podObject(podTerminatingSince(ago(time.Hour)))),
			objects(bound, node(corev1.ConditionTrue), podObject())},
		{"the pod is finished in the cache only",
			objects(bound, node(corev1.ConditionTrue), podObject(podFinished(corev1.PodFailed, ago(time.Hour)))),
			objects(bound, node(corev1.ConditionTrue), podObject())},
		{"the pod is replaced in the cache only",
			objects(bound, node(corev1.ConditionTrue), podObject(podReplacedAt(ago(time.Hour)))),
			objects(bound, node(corev1.ConditionTrue), podObject())},
		{"the node is missing in the cache only", objects(bound, podObject()), objects(bound, podObject(), node(corev1.ConditionTrue))},
		{"the node is Ready in the cache only", objects(bound, node(corev1.ConditionTrue)), objects(bound, silent)},
		{"the node is out of service in the cache only", objects(bound, podObject(), tainted), objects(bound, podObject(), silent)},
		{"the StatefulSet is scaled in, in the cache only",
			objects(poolObject(), retained, statefulSet(0)),
			objects(poolObject(), retained, statefulSet(1))},
		{"the StatefulSet is missing in the cache only", objects(poolObject(), retained), objects(poolObject(), retained, statefulSet(1))},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := between(t, row.cached, row.live)
			b.lookUntilDue()
			b.wantUntouched()
		})
	}
}

func TestNothingIsReclaimedWhenTheLiveReadFails(t *testing.T) {
	b := agreed(t, poolObject(), leaseObject(), node(corev1.ConditionTrue))
	b.reconciler.Reader.Live = interceptor.NewClient(b.live.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewServerTimeout(corev1.Resource("pods"), "get", 1)
		},
	})
	b.reconciler.begin()
	check.OK(t, check.Err(b.look()))
	b.clock.Step(time.Hour)
	check.That(t, check.Err(b.look()) != nil, "a failed read is no answer, but the look ended well")
	b.wantUntouched()
}

// TestALeaseThatChangedMeanwhileIsNotTaken: the cache has an older version than the API server.
func TestALeaseThatChangedMeanwhileIsNotTaken(t *testing.T) {
	old, present := leaseObject(), leaseObject()
	old.ResourceVersion, present.ResourceVersion = "998", "999"
	present.Spec.Holder.PodUID = otherUID
	b := between(t, objects(poolObject(), old, node(corev1.ConditionTrue)), objects(poolObject(), present, node(corev1.ConditionTrue)))
	for range 3 {
		check.OK(t, check.Err(b.look()))
		b.clock.Step(time.Minute)
	}
	b.wantUntouched()
}

func TestALeaseIsTakenWhenBothViewsAgree(t *testing.T) {
	b := agreed(t, poolObject(), leaseObject(), agentOn("n1"), agentOn("n2"))
	b.lookUntilDue()

	b.wantTaken(v1alpha1.ReasonPodGone, "n1") // its own node
	previous := b.lease().Spec.Previous
	check.That(t, previous != nil && previous.PodUID == holderUID, "previous holder %+v", previous)
	check.That(t, b.clock.Now().Sub(noon()) >= 5*time.Second, "taken at %s, extraGrace is 5 s", b.clock.Now())
}

func TestALeaseIsTakenInItsTurn(t *testing.T) {
	b := agreed(t, poolObject(), leaseObject(), agentOn("n1"), agentOn("n2"))
	for i := range takenAtOnce + 1 {
		b.reconciler.turns.take("other", fmt.Sprint("lease-", i), b.clock.Now())
	}
	b.lookUntilDue()
	b.wantUntouched()
	due, _ := b.reconciler.turns.due(b.clock.Now())
	check.List(t, due, []string{fmt.Sprint("lease-", takenAtOnce), b.lease().Name}, "leases whose turn has come:")
	check.OK(t, check.Err(b.look()))
	b.wantTaken(v1alpha1.ReasonPodGone, "n1")
}

// TestARunningPodIsDeletedFirst is rule R12.
func TestARunningPodIsDeletedFirst(t *testing.T) {
	b := agreed(t, poolObject(), leaseObject(), podObject(), agentOn("n2"))
	b.lookUntilDue()
	check.Must(t, len(b.deletedOnLive) == 1 && b.deletedOnLive[0] == "web-0", "deleted %v, want the pod", b.deletedOnLive)
	check.Must(t, b.lease().Spec.State == v1alpha1.StateBound, "the lease was taken together with its pod")
	// The deletion reaches the cache.
	check.OK(t, b.cached.Delete(context.Background(), podObject()))
	b.lookUntilDue()
	b.wantTaken(v1alpha1.ReasonNodeGone, "n2")
}

func TestVerifierGoesOnWithoutAnother(t *testing.T) {
	quarantined := leaseObject(quarantinedFor(v1alpha1.ReasonPodGone, noon()))
	quarantined.Spec.NodeName = "n1"
	b := agreed(t, poolObject(), quarantined, agentOn("n1"))
	before := b.lease().ResourceVersion
	b.lookUntilDue()
	got := b.lease()
	check.That(t, got.Spec.NodeName == "n1" && got.ResourceVersion == before, "the only verifier was changed to %s", got.Spec.NodeName)
}

// Nobody probes the address of a conflict whose agent is away, so another node takes over.
func TestAConflictMovesWhenTheAgentOfItsNodeIsAway(t *testing.T) {
	met := leaseObject(quarantinedFor(v1alpha1.ReasonConflict, noon()))
	met.Spec.NodeName = "n1"
	b := agreed(t, poolObject(), met, agentOn("n1"), agentOn("n2"))
	result, err := b.look()
	check.Must(t, err == nil && result.IsZero(), "while its node probes: %+v, %v", result, err)
	b.clock.Step(time.Hour)
	check.OK(t, b.cached.Delete(t.Context(), agentPod("n1", func(*podview.Pod) {})))
	result, err = b.look()
	check.That(t, err == nil && result.RequeueAfter == verifierPatience && b.lease().Spec.NodeName == "n1",
		"as its agent goes: %+v, %v, the lease is with %s", result, err, b.lease().Spec.NodeName)
	b.clock.Step(verifierPatience)
	_, err = b.look()
	check.That(t, err == nil && b.lease().Spec.NodeName == "n2", "as it stays away: %v, the lease is with %s", err, b.lease().Spec.NodeName)
}

func TestRemarks(t *testing.T) {
	elsewhere := poolObject()
	elsewhere.Spec.IPs = []string{"10.6.0.100-10.6.0.110"}
	says := func(message string) change { return func(f *Facts) { f.Lease.Spec.Message = message } }
	because := func(r v1alpha1.LeaseReason) change { return func(f *Facts) { f.Lease.Spec.Reason = r } }
	off := func(f *Facts) { f.Policy.Enabled = false }
	const foreign = "02:00:00:00:00:99 speaks for the address"
	const noPool = "controller: pool blue does not exist; the lease ends with its holder"
	for _, row := range []struct {
		name  string
		facts Facts
		pool  *v1alpha1.IPPool
		want  remark
	}{
		{"nothing to say", facts(), poolObject(), remark{}},
		{"the pool is gone", facts(), nil, remark{v1alpha1.ReasonPoolGone, noPool}},
		{"the pool of a retained lease is gone", facts(inState(v1alpha1.StateRetained), ownedByWeb), nil,
			remark{v1alpha1.ReasonPoolGone, "controller: pool blue does not exist; the lease ends with its retention, or when an operator deletes it"}},
		{"the pool of a Warm lease is gone", facts(inState(v1alpha1.StateWarm)), nil,
			remark{v1alpha1.ReasonPoolGone, "controller: pool blue does not exist; its agent releases the lease"}},
		{"the address has left the pool", facts(), elsewhere,
			remark{v1alpha1.ReasonOutsidePool, "controller: pool blue no longer has the address; the lease ends with its holder"}},
		{"the record names no holder", facts(holderMissing), poolObject(), remark{v1alpha1.ReasonNoHolder, "controller: the record names no holder"}},
		{"why nothing is done", facts(nodeNotReady, nodeDown(v1alpha1.NodeDownNever), podGoneSince(ago(0))), poolObject(),
			remark{"", "controller: node n1 is not Ready, and reclaim.nodeDown is Never"}},
		{"both", facts(nodeNotReady, nodeDown(v1alpha1.NodeDownNever), podGoneSince(ago(0))), nil,
			remark{v1alpha1.ReasonPoolGone, noPool + "; node n1 is not Ready, and reclaim.nodeDown is Never"}},
		{"it is due, and reclaim is switched off", facts(off, podGoneSince(ago(time.Hour))), poolObject(),
			remark{"", "controller: due, but reclaim is switched off: pod default/web-0 does not exist"}},
		{"an agent's message stays", facts(says(foreign)), nil, remark{v1alpha1.ReasonPoolGone, foreign}},
		{"an agent's reason stays", facts(because("Other")), nil, remark{"Other", noPool}},
		{"what is no longer true goes", facts(says(noPool), because(v1alpha1.ReasonPoolGone)), poolObject(), remark{}},
		{"a verifier's answer stays", facts(quarantinedFor(v1alpha1.ReasonPodGone, ago(0)), verifierAnswered("hears nobody", 0)), nil,
			remark{v1alpha1.ReasonPodGone, "hears nobody"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			check.Equal(t, remarkOn(row.facts.Lease, row.pool, Decide(row.facts)), row.want, "remark")
		})
	}
}

// agentPod is the agent's pod of agentOn, changed.
func agentPod(node string, change func(*podview.Pod)) client.Object {
	pod := agentOn(node)[1].(*podview.Pod)
	change(pod)
	return pod
}

// TestWhoMayVerify: the lease's holder is on n1.
func TestWhoMayVerify(t *testing.T) {
	ready, silent := node(corev1.ConditionTrue), node(corev1.ConditionUnknown)
	agent := func(*podview.Pod) {}
	for _, row := range []struct {
		name  string
		world []client.Object
		want  []string
	}{
		{"the holder's own node first", objects(agentOn("n1"), agentOn("n2")), []string{"n1", "n2"}},
		{"not while it is silent", objects(silent, agentPod("n1", agent), agentOn("n2")), []string{"n2"}},
		{"not without an agent", objects(ready, agentOn("n2")), []string{"n2"}},
		{"not with one that is not Ready", objects(ready, agentPod("n1", func(p *podview.Pod) { p.Status.Conditions = nil }), agentOn("n2")), []string{"n2"}},
		{"another pod is no agent", objects(ready, agentPod("n1", func(p *podview.Pod) { p.Labels = nil }), agentOn("n2")), []string{"n2"}},
		{"an agent elsewhere is none", objects(ready, agentPod("n1", func(p *podview.Pod) { p.Namespace = "default" }), agentOn("n2")), []string{"n2"}},
		{"one without a node is passed over", objects(agentOn("n2"), agentPod("", agent)), []string{"n2"}},
		{"a node whose agent is replaced is asked once",
			objects(agentOn("n2"), agentPod("n2", func(p *podview.Pod) { p.Name = "agent-new" })), []string{"n2"}},
		{"nobody", nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := agreed(t, poolObject(), leaseObject(), row.world)
			all := check.Value(b.reconciler.verifiers(t.Context(), leaseObject()))(t)
			check.List(t, slices.Collect(all), row.want, "verifiers")
			first := ""
			if len(row.want) > 0 {
				first = row.want[0]
			}
			got, err := b.reconciler.bestVerifier(t.Context(), leaseObject())
			check.That(t, got == first && err == nil, "the first is %q (%v), want %q", got, err, first)
		})
	}
}

// TestWhoWasSeen: only a holder whose own pod was there can have been deleted;
// of any other it is said that it does not exist.
func TestWhoWasSeen(t *testing.T) {
	holder := func(uid string) *v1alpha1.Holder {
		return &v1alpha1.Holder{Namespace: "default", Pod: "web-0", PodUID: uid}
	}
	type look struct {
		pod    *podview.Pod
		holder *v1alpha1.Holder
	}
	for _, row := range []struct {
		name  string
		looks []look
		want  bool
	}{
		{"a pod that is there", []look{{pod(holderUID), holder(holderUID)}}, true},
		{"a pod that was there", []look{{pod(holderUID), holder(holderUID)}, {nil, holder(holderUID)}}, true},
		{"a pod that was never there", []look{{nil, holder(holderUID)}}, false},
		{"another pod of that name", []look{{pod(otherUID), holder(holderUID)}}, false},
		{"the lease now belongs to another holder", []look{{pod(holderUID), holder(holderUID)}, {nil, holder(otherUID)}}, false},
		{"a record without UID", []look{{pod(""), holder("")}}, false},
		{"a record without holder", []look{{pod(holderUID), nil}}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			n, seen := &note{}, false
			for _, l := range row.looks {
				seen = n.saw(l.pod, l.holder)
			}
			check.Equal(t, seen, row.want, "seen:")
		})
	}
}

// TestSinceWhenAPodIsFinished: the time of the first look that finds it finished counts.
func TestSinceWhenAPodIsFinished(t *testing.T) {
	n := &note{}
	for i, look := range []struct {
		finished bool
		at, want time.Time
	}{
		{false, ago(9 * time.Second), time.Time{}},
		{true, ago(8 * time.Second), ago(8 * time.Second)},
		{true, ago(7 * time.Second), ago(8 * time.Second)},
		{false, ago(6 * time.Second), time.Time{}},
		{true, ago(5 * time.Second), ago(5 * time.Second)},
	} {
		check.Equal(t, n.firstSeen(finishedPod, look.finished, look.at), look.want, "look %d: since", i)
	}
}

const auditTestPeriod = 10 * time.Minute

// audit runs the audit until the test ends. woken returns the leases that it has woken since the last
// call, in order, once it waits again. The test is a bubble of synctest.
func (b *bench) audit() (woken func() []string) {
	b.t.Helper()
	var names []string
	ctx, stop := context.WithCancel(b.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.reconciler.audit(ctx, auditTestPeriod, func(r ctrl.Request) { names = append(names, r.Name) })
	}()
	b.t.Cleanup(func() {
		stop()
		<-ended
	})
	synctest.Wait() // until the audit has its ticker
	return func() []string {
		synctest.Wait()
		got := names
		names = nil
		slices.Sort(got)
		return got
	}
}

func TestTheAuditLooksAtEveryLeaseOncePerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := leaseObject(), leaseObject()
		second.Name, second.UID, second.Spec.Address = "10.6.0.11", "other-uid", "10.6.0.11"
		b := between(t, objects(first, second), nil)
		woken := b.audit()
		for range 2 {
			b.clock.Step(auditTestPeriod - time.Second)
			check.None(t, woken(), "woken before the period has passed:")
			b.clock.Step(time.Second)
			check.List(t, woken(), []string{first.Name, second.Name}, "woken:")
		}
	})
}

// TestTheAuditFindsWhatNoEventTold: the pod goes, and the watch's event is lost.
func TestTheAuditFindsWhatNoEventTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := agreed(t, poolObject(), leaseObject(), podObject(), agentOn("n1"))
		check.Value(b.look())(t)
		for _, view := range []client.Client{b.cached, b.live} {
			check.OK(t, view.Delete(t.Context(), podObject()))
		}
		woken := b.audit()
		b.clock.Step(auditTestPeriod)
		check.List(t, woken(), []string{"10.6.0.10"}, "woken:")
		b.lookUntilDue()
		b.wantTaken(v1alpha1.ReasonPodDeleted)
	})
}

// TestWithheldIsSaidOnce: a lease that is due while reclaim is switched off.
func TestWithheldIsSaidOnce(t *testing.T) {
	b := agreed(t, poolObject(), leaseObject(), agentOn("n1"))
	b.reconciler.Reader.Defaults.Enabled = false
	for range 4 {
		check.Value(b.look())(t)
		b.clock.Step(time.Minute)
		// The write reaches the cache.
		check.OK(t, b.cached.Delete(t.Context(), leaseObject()))
		seen := b.lease()
		seen.ResourceVersion = ""
		check.OK(t, b.cached.Create(t.Context(), seen))
	}
	b.wantUntouched()
	recorder := b.reconciler.Events.(*events.FakeRecorder)
	check.Equal(t, len(recorder.Events), 2, "events, one on the lease and one on the pool:")
	for range len(recorder.Events) {
		check.Says(t, <-recorder.Events, eventWithheld)
	}
}

func TestAnOwnerThatCannotBeReadIsCounted(t *testing.T) {
	kept := leaseObject(inState(v1alpha1.StateRetained))
	kept.Spec.Holder.OwnerGroup, kept.Spec.Holder.OwnerKind, kept.Spec.Holder.OwnerName = "apps.example.com", "StatefulSet", "web"
	b := agreed(t, poolObject(), kept)
	var why []string
	b.reconciler.Reader.Owners.Mapper = meta.NewDefaultRESTMapper(nil)
	b.reconciler.Reader.OwnerUnknown = func(reason string) { why = append(why, reason) }
	check.Value(b.look())(t)
	check.List(t, why, []string{string(owner.LackAPI)}, "counted")
	b.reconciler.Reader.OwnerUnknown = nil // as in the command
	a := check.Value(b.reconciler.Reader.Explain(t.Context(), kept))(t)
	check.That(t, a.Kind == Wait && !a.Destructive(), "explained as %+v", a)
}
