// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
)

func TestQuarantinedLease(t *testing.T) {
	const gone, conflict = v1alpha1.ReasonPodGone, v1alpha1.ReasonConflict
	const movingIn = v1alpha1.ReasonMovingIn
	ofAnotherIPAM := func(f *Facts) { f.Lease.Spec.Previous.Reason = movingIn }
	reassign, end := Action{Kind: Reassign}, Action{Kind: EndQuarantine}
	for _, row := range []struct {
		name string
		when Facts
		then Action
	}{
		{"a verifier has 5 s", facts(quarantinedFor(gone, ago(4*s))), waitUntil(hence(1 * s))},
		{"a verifier without progress for 5 s is changed", facts(quarantinedFor(gone, ago(5*s))), reassign},
		{"the second verifier has 10 s, and so on", facts(quarantinedFor(gone, ago(4*s)), verifierAnswered("", 1)), waitUntil(hence(6 * s))},
		{"a verifier that is not alive is changed at once", facts(quarantinedFor(gone, ago(0)), verifierDead), reassign},
		{"a verifier whose node is gone is changed at once", facts(quarantinedFor(gone, ago(0)), verifierGone), reassign},
		{"Unknown is an answer: another verifier after 10 s", facts(quarantinedFor(gone, ago(9*s)), verifierAnswered("hears nobody", 0)), waitUntil(hence(1 * s))},
		{"Unknown again: the pause doubles", facts(quarantinedFor(gone, ago(10*s)), verifierAnswered("hears nobody", 2)), waitUntil(hence(30 * s))},
		{"Unknown for ever: the pause ends at 10 min", facts(quarantinedFor(gone, ago(10*time.Minute)), verifierAnswered("hears nobody", 40)), reassign},
		{"Unverified is verified like any other", facts(quarantinedFor(v1alpha1.ReasonUnverified, ago(5*s))), reassign},

		{"the holder's node goes out of service meanwhile: the assertion is passed on", facts(quarantinedFor(gone, ago(0)), nodeNotReady, nodeTainted), take(v1alpha1.ReasonOutOfService)},
		{"the holder's node is deleted meanwhile: the assertion is passed on", facts(quarantinedFor(gone, ago(0)), nodeGoneSince(ago(0))), take(v1alpha1.ReasonNodeGone)},
		{"the assertion is passed on once", facts(quarantinedFor(v1alpha1.ReasonNodeGone, ago(0)), nodeGoneSince(ago(0))), waitUntil(hence(5 * s))},
		{"a node that could not be read is no assertion", facts(quarantinedFor(gone, ago(0)), nodeUnknown), waitUntil(hence(5 * s))},

		{"a conflict stays with its node, which probes again", facts(quarantinedFor(conflict, ago(time.Hour))), leaveAlone()},
		{"a conflict moves when its node is gone", facts(quarantinedFor(conflict, ago(0)), verifierGone), reassign},
		{"a conflict stays with a node that is not alive for a moment", facts(quarantinedFor(conflict, ago(time.Hour)), verifierAway(ago(4*s))), waitUntil(hence(1 * s))},
		{"a conflict moves when its node is not alive for 5 s: a speaker that has left must not keep the address", facts(quarantinedFor(conflict, ago(time.Hour)), verifierAway(ago(5*s))), reassign},
		{"a conflict stays with a node that hears the other speaker", facts(quarantinedFor(conflict, ago(time.Hour)), otherHeard(ago(19*time.Minute))), waitUntil(hence(time.Minute))},
		{"a conflict moves when its node is deaf", facts(quarantinedFor(conflict, ago(time.Hour)), otherHeard(ago(20*time.Minute))), reassign},
		{"the next node of a conflict has as much time", facts(quarantinedFor(conflict, ago(19*time.Minute)), otherHeard(ago(time.Hour))), waitUntil(hence(time.Minute))},
		{"a conflict that the previous holder may have made ends with its machine", facts(quarantinedFor(conflict, ago(0)), nodeGoneSince(ago(time.Hour))), take(v1alpha1.ReasonNodeGone)},
		{"a conflict found at ADD has no previous machine", facts(quarantinedFor(conflict, ago(0)), nodeGoneSince(ago(time.Hour)),
			func(f *Facts) { f.Lease.Spec.Previous = nil }), leaveAlone()},

		{"a conflict without a holder ends when no pool hands the address out", facts(quarantinedFor(conflict, ago(0)), withoutHolder, handedOutBy()), end},
		{"this ends also while reclaim is switched off, because it takes nothing", facts(quarantinedFor(conflict, ago(0)), withoutHolder, handedOutBy(),
			func(f *Facts) { f.Policy.Enabled = false }), end},
		{"while a pool hands it out, it stays", facts(quarantinedFor(conflict, ago(0)), withoutHolder, handedOutBy("green")), leaveAlone()},
		{"while the pools could not be read, it stays", facts(quarantinedFor(conflict, ago(0)), withoutHolder), leaveAlone()},
		{"its node is gone as well", facts(quarantinedFor(conflict, ago(0)), withoutHolder, handedOutBy(), verifierGone), end},
		{"a conflict with a predecessor stays: a pool may be made again with the address", facts(quarantinedFor(conflict, ago(0)), handedOutBy(),
			func(f *Facts) { f.Lease.Spec.Holder = nil }), leaveAlone()},
		{"a predecessor of which only the MAC is known stays", facts(quarantinedFor(conflict, ago(0)), handedOutBy(),
			func(f *Facts) { f.Lease.Spec.Holder, f.Lease.Spec.Previous.PodUID = nil, "" }), leaveAlone()},
		{"a conflict with a name that keeps the address stays", facts(quarantinedFor(conflict, ago(0)), handedOutBy(),
			func(f *Facts) { f.Lease.Spec.Previous = nil }), leaveAlone()},
		{"an address that was taken from a pod stays until it is proven", facts(quarantinedFor(gone, ago(0)), handedOutBy()), waitUntil(hence(5 * s))},
		{"an address that was Warm on a node without an agent ends", warmTaken(v1alpha1.ReasonAgentGone, handedOutBy()), end},
		{"an address that was Warm on a silent node ends", warmTaken(v1alpha1.ReasonNodeUnreachable, handedOutBy()), end},
		{"the address of another IPAM's pod stays with the agent of its node", facts(quarantinedFor(movingIn, ago(time.Hour)), ofAnotherIPAM), leaveAlone()},
		{"also while this agent is away", facts(quarantinedFor(movingIn, ago(time.Hour)), ofAnotherIPAM, verifierDead), leaveAlone()},
		{"also after a take-over that was not confirmed", facts(quarantinedFor(v1alpha1.ReasonUnverified, ago(time.Hour)), ofAnotherIPAM, verifierDead), leaveAlone()},
		{"until the end of its machine is asserted", facts(quarantinedFor(movingIn, ago(0)), ofAnotherIPAM, nodeGoneSince(ago(0))), take(v1alpha1.ReasonNodeGone)},
		{"the address of another IPAM's record without a pod is verified by any node", facts(quarantinedFor(movingIn, ago(0)), withoutHolder, handedOutBy(), verifierDead), reassign},
		{"an address that was Warm is verified while a pool hands it out", warmTaken(v1alpha1.ReasonAgentGone, handedOutBy("blue")), waitUntil(hence(5 * s))},
	} {
		t.Run(row.name, func(t *testing.T) { expect(t, Decide(row.when), row.then) })
	}
}

func TestQuarantineKeepsWhatIsNeededLater(t *testing.T) {
	old := facts().Lease.Spec
	old.Holder.Token = 5
	old.Message = "pool blue does not exist"
	before := *old.DeepCopy()

	got := quarantined(old, v1alpha1.ReasonPodTerminating, "n2", noon())

	check.Same(t, old, before, "the old spec was changed")
	want := before
	want.State, want.Reason, want.Since = v1alpha1.StateQuarantined, v1alpha1.ReasonPodTerminating, metav1.NewTime(noon())
	want.NodeName = "n2"
	want.Session = ""
	want.Message = ""
	want.Previous = &v1alpha1.PreviousHolder{
		Node: "n1", Session: "node-uid/boot-id", PodUID: holderUID, MAC: "02:00:00:00:00:0a", Token: 5, Guarded: true,
		Reason: v1alpha1.ReasonPodTerminating, Since: metav1.NewTime(noon()),
	}
	check.Same(t, got, want, "quarantined")
}

func TestQuarantineForAnotherReasonKeepsThePreviousHolder(t *testing.T) {
	first := quarantined(facts().Lease.Spec, v1alpha1.ReasonPodGone, "n2", ago(time.Minute))
	second := quarantined(first, v1alpha1.ReasonNodeGone, "n3", noon())

	check.That(t, second.Previous.Node == "n1" && second.Previous.PodUID == holderUID, "the previous holder was lost: %+v", second.Previous)
	check.That(t, second.Previous.Reason == v1alpha1.ReasonNodeGone && second.NodeName == "n3",
		"reason %s at %s, want NodeGone at n3", second.Previous.Reason, second.NodeName)
}

// A take-over that was not confirmed has not spoken: who may still speak is the one before.
func TestTheEndOfASuccessorsMachineProvesNothing(t *testing.T) {
	taken := quarantined(facts().Lease.Spec, v1alpha1.ReasonNodeUnreachable, "n2", ago(time.Minute))
	previous := taken.Previous.DeepCopy()
	taken.State, taken.Reason, taken.NodeName, taken.Session = v1alpha1.StateBound, "", "n2", "node-2/boot-id"

	again := quarantined(taken, v1alpha1.ReasonNodeGone, "n3", noon())
	check.Same(t, again.Previous, previous, "what is known of the previous holder, on n1")
	check.That(t, again.Reason == v1alpha1.ReasonNodeGone && again.Since.Time.Equal(noon()), "reason %s since %s", again.Reason, again.Since)
	// The end of its own machine does, whenever it comes.
	ended := facts(nodeGoneSince(ago(0)))
	ended.Lease.Spec = again
	expect(t, Decide(ended), take(v1alpha1.ReasonNodeGone))
}

func TestQuarantineWithoutAVerifierStaysWithTheNode(t *testing.T) {
	check.Equal(t, quarantined(facts().Lease.Spec, v1alpha1.ReasonPodGone, "", noon()).NodeName, "n1", "node")
}

func TestReassignmentForgetsTheAnswer(t *testing.T) {
	spec := quarantined(facts().Lease.Spec, v1alpha1.ReasonPodGone, "n2", noon())
	spec.Message = "hears nobody"
	got := reassigned(spec, "n3")
	check.That(t, got.Message == "" && got.NodeName == "n3", "node %q, message %q", got.NodeName, got.Message)
}

// TestAConflictEndsOnlyWhenBothViewsAgree is rule R11 for the end of a quarantine.
func TestAConflictEndsOnlyWhenBothViewsAgree(t *testing.T) {
	conflict := leaseObject(quarantinedFor(v1alpha1.ReasonConflict, noon()), withoutHolder)
	reservation := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "printers"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.6.0.10"}}}
	excluded := poolObject()
	excluded.Spec.ExcludeIPs = []string{"10.6.0.10"}
	other := poolObject()
	other.Name = "green"
	for _, row := range []struct {
		name         string
		cached, live []client.Object
		ends         bool
	}{
		{"the pool is gone", objects(), objects(), true},
		{"the pool is missing in the cache only", objects(), objects(poolObject()), false},
		{"the pool is there in the cache only", objects(poolObject()), objects(), false},
		{"the address is excluded", objects(excluded), objects(excluded), true},
		{"the address is excluded in the cache only", objects(excluded), objects(poolObject()), false},
		{"the address is reserved", objects(poolObject(), reservation), objects(poolObject(), reservation), true},
		{"the address is reserved in the cache only", objects(poolObject(), reservation), objects(poolObject()), false},
		{"another pool has the address", objects(excluded, other), objects(excluded, other), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			world := objects(conflict, agentOn("n1"), agentOn("n2"))
			b := between(t, objects(world, row.cached), objects(world, row.live))
			check.OK(t, check.Err(b.look()))
			check.Equal(t, b.lease() == nil, row.ends, "the lease has ended:")
		})
	}
}

// warmWorld has a Warm lease of n1, which has no agent, and another node that has one.
func warmWorld() []client.Object {
	return objects(poolObject(), leaseObject(inState(v1alpha1.StateWarm), holderMissing), node(corev1.ConditionTrue), agentOn("n2"))
}

func TestAWarmLeaseDoesNotOutlastItsNodesAgent(t *testing.T) {
	b := between(t, warmWorld(), warmWorld())
	result, err := b.look()
	check.Must(t, err == nil && result.RequeueAfter == warmGrace, "the first look: %+v, %v", result, err)
	b.clock.Step(warmGrace - time.Second)
	result, err = b.look()
	check.Must(t, err == nil && result.RequeueAfter == time.Second, "a second before: %+v, %v", result, err)
	b.clock.Step(time.Second)
	check.Value(b.look())(t)
	b.wantTaken(v1alpha1.ReasonAgentGone, "n2")
}

func TestAnAgentThatComesBackKeepsItsWarmLeases(t *testing.T) {
	world := warmWorld()
	b := between(t, world, world)
	check.OK(t, check.Err(b.look()))
	agent := agentPod("n1", func(*podview.Pod) {})
	check.OK(t, b.cached.Create(t.Context(), agent))
	requests := woken{Reader: b.reconciler.Reader}.ofPod(t.Context(), agent)
	check.List(t, requests, []ctrl.Request{{NamespacedName: types.NamespacedName{Name: "10.6.0.10"}}}, "the agent wakes")
	b.clock.Step(warmGrace)
	result, err := b.look()
	check.That(t, err == nil && result.IsZero(), "with its agent: %+v, %v", result, err)
	check.OK(t, b.cached.Delete(t.Context(), agent))
	result, err = b.look()
	check.That(t, err == nil && result.RequeueAfter == warmGrace, "once it has gone again: %+v, %v", result, err)
}

// TestPatienceIsOfThoseWhoWereAsked: while nobody is there who could verify, each
// node that appears has the waiting leases looked at.
func TestPatienceIsOfThoseWhoWereAsked(t *testing.T) {
	lease := leaseObject(quarantinedFor(v1alpha1.ReasonPodGone, ago(0)))
	b := between(t, nil, objects(poolObject(), lease))
	b.reconciler.Reader.Cache = b.live
	look := func() ctrl.Result { return check.Value(b.look())(t) }
	for range 10 {
		look()
	}
	for _, o := range objects(agentOn("n3"), agentOn("n4")) {
		check.OK(t, b.live.Create(t.Context(), o))
	}
	look()
	first := b.lease().Spec.NodeName
	b.clock.Step(look().RequeueAfter)
	look()
	check.Equal(t, b.clock.Now().Sub(noon()), verifierPatience, "%s was asked for", first)
	check.That(t, b.lease().Spec.NodeName != first, "%s is asked again", first)
}
