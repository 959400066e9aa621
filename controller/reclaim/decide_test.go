// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

const s = time.Second

func leaveAlone() Action { return Action{Kind: None} }

// tell leaves the lease alone and says why.
func tell(r v1alpha1.LeaseReason) Action { return Action{Kind: None, Tell: true, Reason: r} }

// withheld says that the lease is due.
func withheld(r v1alpha1.LeaseReason) Action {
	return Action{Kind: None, Tell: true, Withheld: true, Reason: r}
}

func waitUntil(t time.Time) Action { return Action{Kind: Wait, Until: t} }

func take(r v1alpha1.LeaseReason) Action { return Action{Kind: Quarantine, Reason: r} }

func deletePod(r v1alpha1.LeaseReason, force bool) Action {
	return Action{Kind: DeletePod, Reason: r, Force: force}
}

func TestBoundLease(t *testing.T) {
	for _, row := range []struct {
		name string
		when Facts
		then Action
	}{
		// Alive.
		{"a running pod keeps its address", facts(), leaveAlone()},
		{"a pending pod keeps its address", facts(podPending), leaveAlone()},
		{"a pod on the host's network is never touched", facts(podOnHostNetwork, podTerminatingSince(ago(time.Hour))), leaveAlone()},
		{"a static pod is known by its config hash", facts(podStatic), leaveAlone()},

		{"an annotation alone makes no static pod", facts(podStatic, podCallsItselfStatic), tell(v1alpha1.ReasonPodReplaced)},

		// Missing data is in use.
		{"no address is taken when the pod could not be read", facts(podUnknown), leaveAlone()},
		{"no address is taken when the node could not be read", facts(podGoneSince(ago(time.Hour)), nodeUnknown), leaveAlone()},
		{"no address is taken when the record names no holder", facts(holderMissing, podGoneSince(ago(time.Hour))), tell(v1alpha1.ReasonNoHolder)},
		{"no address is taken when the record has no UID and a pod of that name exists", facts(uidMissing, nodeGoneSince(ago(time.Hour))), tell(v1alpha1.ReasonNoHolder)},
		{"the address of a record without UID is taken when no pod of that name exists", facts(uidMissing, podGoneSince(ago(6*time.Minute))), take(v1alpha1.ReasonPodGone)},
		{"a record without UID may be a static pod's", facts(uidMissing, podGoneSince(ago(time.Minute))), waitUntil(hence(4*time.Minute + 5*s))},
		{"no address is taken while the store's revision is older than the holder's token", facts(storeWentBack, podGoneSince(ago(time.Hour))), leaveAlone()},
		{"with an older store the address is taken when the machine is gone, which needs no fence", facts(storeWentBack, nodeGoneSince(ago(time.Hour)), podGoneSince(ago(time.Hour))), take(v1alpha1.ReasonNodeGone)},
		{"a record that names the pod of another node is damaged, and its own node's end is no reason", facts(podElsewhere, nodeGoneSince(ago(time.Hour))), tell(v1alpha1.ReasonNoHolder)},
		{"a record that names the pod of another node never ends that pod", facts(podElsewhere, nodeNotReady, nodeTainted), tell(v1alpha1.ReasonNoHolder)},
		{"a pod that the cache knows without a node is alive", facts(podUnscheduled, nodeGoneSince(ago(time.Hour))), leaveAlone()},
		{"the ADD that has just bound a lease has time for its answer, although its machine is out of service",
			facts(boundAt(ago(4*s)), nodeTainted, nodeNotReady, podGoneSince(ago(time.Hour))), waitUntil(hence(1 * s))},
		{"and its pod was finished before", facts(boundAt(ago(4*s)), podFinished(corev1.PodFailed, ago(time.Hour))), waitUntil(hence(1 * s))},
		{"no address is taken in an unknown state", facts(inState("Borrowed"), podGoneSince(ago(time.Hour))), leaveAlone()},

		// Terminating: deletionTimestamp includes the pod's grace, extraGrace comes on top.
		{"a pod that is being deleted normally is left to the agent's DEL", facts(podTerminatingSince(hence(20 * s))), waitUntil(hence(25 * s))},
		{"a Terminating pod has extraGrace after deletionTimestamp", facts(podTerminatingSince(ago(4 * s))), waitUntil(hence(1 * s))},
		{"a pod Terminating past deletionTimestamp and extraGrace loses its address", facts(podTerminatingSince(ago(5 * s))), take(v1alpha1.ReasonPodTerminating)},
		{"the deletion of its mirror pod ends no static pod", facts(podStatic, podTerminatingSince(ago(time.Hour))), leaveAlone()},
		{"a mirror pod that only finalizers keep is no more evidence", facts(podStatic, podForceDeleted(ago(time.Hour))), leaveAlone()},
		{"a pool may keep the addresses of Terminating pods; the message says so once the lease is due", facts(terminatingOff, podTerminatingSince(ago(5*s))), tell("")},
		{"a pool that keeps them writes no message for a normal end", facts(terminatingOff, podTerminatingSince(hence(20*s))), waitUntil(hence(25 * s))},

		// Finished.
		{"a succeeded pod has its grace period and extraGrace for DEL", facts(podFinished(corev1.PodSucceeded, ago(30*s))), waitUntil(hence(5 * s))},
		{"a succeeded pod past its grace loses its address", facts(podFinished(corev1.PodSucceeded, ago(35*s))), take(v1alpha1.ReasonPodFinished)},
		{"a failed pod past its grace loses its address", facts(podFinished(corev1.PodFailed, ago(35*s))), take(v1alpha1.ReasonPodFinished)},
		{"an evicted pod has no container statuses, so its conditions give the time", facts(podEvicted(ago(30 * s))), waitUntil(hence(5 * s))},
		{"a finished pod does not wait for its silent node", facts(nodeNotReady, nodeDown(v1alpha1.NodeDownNever), podFinished(corev1.PodFailed, ago(time.Minute))), take(v1alpha1.ReasonPodFinished)},
		{"a node's clock is ahead: a pod finished when it was first seen as finished", facts(podFinished(corev1.PodSucceeded, hence(time.Hour)), finishedSeen(ago(34*s))), waitUntil(hence(1 * s))},
		{"a node's clock is ahead: its finished pod loses its address in time", facts(podFinished(corev1.PodSucceeded, hence(time.Hour)), finishedSeen(ago(35*s))), take(v1alpha1.ReasonPodFinished)},
		{"a pod that was seen late finished at the time in its status", facts(podFinished(corev1.PodSucceeded, ago(35*s)), finishedSeen(ago(0))), take(v1alpha1.ReasonPodFinished)},

		// Gone.
		{"a pod that has just vanished is left to the agent's DEL", facts(podGoneSince(ago(1 * s))), waitUntil(hence(4 * s))},
		{"a pod that is gone for extraGrace loses its address", facts(podGoneSince(ago(5 * s))), take(v1alpha1.ReasonPodGone)},
		{"a pod that an earlier look found was deleted (reason PodDeleted)", facts(podDeletedAt(ago(5 * s))), take(v1alpha1.ReasonPodDeleted)},
		{"a pod that an earlier look found was replaced (reason PodReplaced)", facts(podReplacedAt(ago(5*s)), podSeen), take(v1alpha1.ReasonPodReplaced)},
		{"a lease that was bound a moment ago has extraGrace too", facts(podGoneSince(ago(time.Hour)), boundAt(ago(2*s))), waitUntil(hence(3 * s))},
		{"the kubelet may create a static pod's mirror pod again", facts(podGoneSince(ago(time.Minute)), podStatic), waitUntil(hence(4*time.Minute + 5*s))},
		{"a static pod without mirror pod for more than 5 min is gone", facts(podGoneSince(ago(6*time.Minute)), podStatic), take(v1alpha1.ReasonPodGone)},

		// Replaced.
		{"a pod replaced a moment ago is left to the agent's DEL", facts(podReplacedAt(ago(1 * s))), waitUntil(hence(4 * s))},
		{"a pod replaced by one with another UID loses its address", facts(podReplacedAt(ago(5 * s))), take(v1alpha1.ReasonPodReplaced)},
		{"the next static pod of the name starts after the end of the earlier one", facts(podStatic, podReplacedAt(ago(5*s)), podMirror), take(v1alpha1.ReasonPodReplaced)},
		{"the mirror pod of another node's static pod is none of this one", facts(podStatic, podReplacedAt(ago(time.Hour)), podMirror, podElsewhere), tell(v1alpha1.ReasonPodReplaced)},
		{"a pod that has the name of a mirror pod ends no static pod, and the message says so", facts(podStatic, podReplacedAt(ago(time.Hour))), tell(v1alpha1.ReasonPodReplaced)},
		{"neither does it on a silent node", facts(nodeNotReady, podStatic, podReplacedAt(ago(time.Hour))), tell(v1alpha1.ReasonPodReplaced)},
		{"node gone: such a static pod is gone too", facts(nodeGoneSince(ago(time.Hour)), podStatic, podReplacedAt(ago(time.Hour))), take(v1alpha1.ReasonNodeGone)},
		{"the replacement's own deletion does not matter", facts(podReplacedAt(ago(5*s)), podTerminatingSince(hence(time.Hour))), take(v1alpha1.ReasonPodReplaced)},
		{"a replacement on the host's network does not matter", facts(podReplacedAt(ago(5*s)), podOnHostNetwork), take(v1alpha1.ReasonPodReplaced)},

		// A silent node: zombies may be alive there, guards fence them.
		{"a silent node's running pod keeps its address", facts(nodeNotReady), leaveAlone()},
		{"a node that never reported counts as silent", facts(nodeNeverReported), leaveAlone()},
		{"a silent node's terminating pod has its grace period as well", facts(nodeNotReady, podTerminatingSince(ago(4*s))), waitUntil(hence(1 * s))},
		{"a silent node's terminating pod loses its address", facts(nodeNotReady, podTerminatingSince(ago(5*s))), take(v1alpha1.ReasonNodeUnreachable)},
		{"no extraGrace on a silent node: gone", facts(nodeNotReady, podGoneSince(ago(0))), take(v1alpha1.ReasonNodeUnreachable)},
		{"no extraGrace on a silent node: deleted", facts(nodeNotReady, podDeletedAt(ago(0))), take(v1alpha1.ReasonNodeUnreachable)},
		{"no extraGrace on a silent node: replaced", facts(nodeNotReady, podReplacedAt(ago(0))), take(v1alpha1.ReasonNodeUnreachable)},
		{"a silent node's static pod without mirror pod waits 5 min", facts(nodeNotReady, podGoneSince(ago(time.Minute)), podStatic), waitUntil(hence(4 * time.Minute))},
		{"a silent node's static pod without mirror pod for more than 5 min is gone", facts(nodeNotReady, podGoneSince(ago(5*time.Minute)), podStatic), take(v1alpha1.ReasonNodeUnreachable)},
		{"a silent node's static pod whose mirror pod is Terminating keeps its address", facts(nodeNotReady, podStatic, podTerminatingSince(ago(time.Hour))), leaveAlone()},
		{"nodeDown After: the mirror pod is deleted first", facts(nodeNotReady, nodeDown("After 1m"), podStatic), deletePod(v1alpha1.ReasonNodeUnreachable, false)},
		{"nodeDown After: then its static pod loses its address", facts(nodeNotReady, nodeDown("After 1m"), podStatic, podTerminatingSince(hence(30*s))), take(v1alpha1.ReasonNodeUnreachable)},
		{"out of service: a mirror pod that only finalizers keep loses its address", facts(nodeNotReady, nodeTainted, podStatic, podForceDeleted(ago(0))), take(v1alpha1.ReasonOutOfService)},
		{"nodeDown Never: terminating", facts(nodeNotReady, nodeDown(v1alpha1.NodeDownNever), podTerminatingSince(ago(time.Hour))), tell("")},
		{"nodeDown Never: gone", facts(nodeNotReady, nodeDown(v1alpha1.NodeDownNever), podGoneSince(ago(time.Hour))), tell("")},
		{"nodeDown Never applies to silent nodes only", facts(nodeDown(v1alpha1.NodeDownNever), podGoneSince(ago(time.Hour))), take(v1alpha1.ReasonPodGone)},
		{"a silent node's holder without a guard is claimed: its agent may live", facts(nodeNotReady, unguarded, podGoneSince(ago(0))), take(v1alpha1.ReasonNodeUnreachable)},
		{"nodeDown After: a silent node's running pod has that time", facts(nodeNotReady, nodeDown("After 2m")), waitUntil(hence(time.Minute))},
		{"nodeDown After: then the pod is deleted first, with grace", facts(nodeNotReady, nodeDown("After 1m")), deletePod(v1alpha1.ReasonNodeUnreachable, false)},
		{"nodeDown After 0s: at once", facts(nodeNotReady, nodeDown("After 0s")), deletePod(v1alpha1.ReasonNodeUnreachable, false)},
		{"nodeDown After: a terminating pod has that time too", facts(nodeNotReady, nodeDown("After 2m"), podTerminatingSince(ago(time.Hour))), waitUntil(hence(time.Minute))},
		{"nodeDown After: then a terminating pod loses its address", facts(nodeNotReady, nodeDown("After 1m"), podTerminatingSince(ago(time.Hour))), take(v1alpha1.ReasonNodeUnreachable)},
		{"nodeDown After: a pod that was deleted first has its own grace", facts(nodeNotReady, nodeDown("After 1m"), podTerminatingSince(hence(30*s))), waitUntil(hence(35 * s))},
		{"nodeDown After: gone, before that time", facts(nodeNotReady, nodeDown("After 2m"), podGoneSince(ago(time.Hour))), waitUntil(hence(time.Minute))},
		{"nodeDown After: gone, after that time", facts(nodeNotReady, nodeDown("After 1m"), podGoneSince(ago(0))), take(v1alpha1.ReasonNodeUnreachable)},
		{"nodeDown After: the time counts from the control plane's taint", facts(nodeReportsNotReady(ago(time.Hour)), nodeSilentTaint(corev1.TaintNodeNotReady, ago(time.Minute)), nodeDown("After 2m")), waitUntil(hence(time.Minute))},
		{"nodeDown After: without the taint, from the condition Unknown", facts(nodeNotReady, nodeSilentTaint(corev1.TaintNodeUnreachable, ago(90*s)), nodeDown("After 2m")), waitUntil(hence(30 * s))},
		{"nodeDown After: with the node's own report, from now, because its clock may be wrong", facts(nodeReportsNotReady(ago(time.Hour)), nodeDown("After 2m")), waitUntil(hence(2 * time.Minute))},
		{"a node's report with a time in the future delays nothing", facts(nodeReportsNotReady(hence(time.Hour)), podTerminatingSince(ago(5*s))), take(v1alpha1.ReasonNodeUnreachable)},
		{"nodeDown After: no pod is deleted whose address could not be taken", facts(nodeNotReady, nodeDown("After 1m"), terminatingOff), leaveAlone()},
		{"nodeDown After: no pod on a Ready node is deleted", facts(nodeDown("After 1m")), leaveAlone()},

		// Somebody's word that the machine is off.
		{"out of service: a running pod is deleted first", facts(nodeNotReady, nodeTainted), deletePod(v1alpha1.ReasonOutOfService, true)},
		{"out of service: a terminating pod is deleted first, without grace", facts(nodeNotReady, nodeTainted, podTerminatingSince(hence(20*s))), deletePod(v1alpha1.ReasonOutOfService, true)},
		{"out of service: a pod that only finalizers keep loses its address", facts(nodeNotReady, nodeTainted, podForceDeleted(ago(0))), take(v1alpha1.ReasonOutOfService)},
		{"out of service: a pod that is gone loses its address at once", facts(nodeNotReady, nodeTainted, podGoneSince(ago(0))), take(v1alpha1.ReasonOutOfService)},
		{"out of service overrides nodeDown Never", facts(nodeNotReady, nodeTainted, nodeDown(v1alpha1.NodeDownNever), podGoneSince(ago(0))), take(v1alpha1.ReasonOutOfService)},
		{"out of service needs no guard", facts(nodeNotReady, nodeTainted, unguarded, podGoneSince(ago(0))), take(v1alpha1.ReasonOutOfService)},
		{"the out-of-service taint on a Ready node has no effect", facts(nodeTainted), leaveAlone()},
		{"node gone: a running pod waits 40 s, because the node may register again", facts(nodeGoneSince(ago(30 * s))), waitUntil(hence(10 * s))},
		{"node gone: then the pod is deleted first", facts(nodeGoneSince(ago(40 * s))), deletePod(v1alpha1.ReasonNodeGone, true)},
		{"node gone: a pod that is gone loses its address at once", facts(nodeGoneSince(ago(0)), podGoneSince(ago(0))), take(v1alpha1.ReasonNodeGone)},
		{"node gone: a replaced pod loses its address at once", facts(nodeGoneSince(ago(0)), podReplacedAt(ago(0))), take(v1alpha1.ReasonNodeGone)},
		{"node gone: a static pod waits 40 s too, because its mirror pod went with the Node object", facts(nodeGoneSince(ago(39*s)), podGoneSince(ago(38*s)), podStatic), waitUntil(hence(s))},
		{"node gone: then the static pod loses its address", facts(nodeGoneSince(ago(40*s)), podGoneSince(ago(39*s)), podStatic), take(v1alpha1.ReasonNodeGone)},
		{"out of service: a static pod without mirror pod loses its address at once", facts(nodeNotReady, nodeTainted, podGoneSince(ago(0)), podStatic), take(v1alpha1.ReasonOutOfService)},
		{"node gone: a finished pod keeps the reason PodFinished", facts(nodeGoneSince(ago(0)), podFinished(corev1.PodSucceeded, ago(time.Hour))), take(v1alpha1.ReasonPodFinished)},

		// A Service still offers the address as the pod's.
		{"the lease waits while a Service offers the address: gone", facts(nodeNotReady, podGoneSince(ago(0)), offeredSince(ago(0))), waitUntil(hence(offerPauseMin))},
		{"the lease waits while a Service offers the address: terminating", facts(nodeNotReady, podTerminatingSince(ago(5*s)), offeredSince(ago(0))), waitUntil(hence(offerPauseMin))},
		{"the lease waits while a Service offers the address: replaced", facts(nodeNotReady, podReplacedAt(ago(0)), offeredSince(ago(0))), waitUntil(hence(offerPauseMin))},
		{"the lease waits while a Service offers the address: out of service", facts(nodeNotReady, nodeTainted, podGoneSince(ago(0)), offeredSince(ago(0))), waitUntil(hence(offerPauseMin))},
		{"the lease waits while a Service offers the address: only finalizers keep the pod", facts(nodeGoneSince(ago(0)), podForceDeleted(ago(0)), offeredSince(ago(0))), waitUntil(hence(offerPauseMin))},
		{"the pause grows with the wait", facts(nodeGoneSince(ago(0)), podGoneSince(ago(0)), offeredSince(ago(3*s))), waitUntil(hence(3 * s))},
		{"the message reports an offer that stays", facts(nodeGoneSince(ago(0)), podGoneSince(ago(0)), offeredSince(ago(time.Hour))), Action{Kind: Wait, Until: hence(offerPauseMax), Tell: true}},
		{"a running pod is deleted first, with or without an offer", facts(nodeNotReady, nodeTainted, offeredSince(ago(0))), deletePod(v1alpha1.ReasonOutOfService, true)},
	} {
		t.Run(row.name, func(t *testing.T) {
			expect(t, Decide(row.when), row.then)
			// What the cache leaves out of objects must not change a decision.
			expect(t, Decide(asCached(t, row.when)), row.then)
		})
	}
}

func TestWarmLease(t *testing.T) {
	warm := inState(v1alpha1.StateWarm)
	for _, row := range []struct {
		name string
		when Facts
		then Action
	}{
		{"its own agent releases it", facts(warm, podUnknown), leaveAlone()},
		{"a node whose agent is replaced keeps it", facts(warm, podUnknown, agentGoneSince(ago(time.Minute))), waitUntil(hence(4 * time.Minute))},
		{"a node without an agent loses it", facts(warm, podUnknown, agentGoneSince(ago(5*time.Minute)), nodeDown(v1alpha1.NodeDownNever)), take(v1alpha1.ReasonAgentGone)},
		{"on a silent node the agent's state does not count", facts(warm, podUnknown, nodeNotReady, agentGoneSince(ago(time.Hour))), waitUntil(hence(4 * time.Minute))},
		{"a silent node keeps it for 5 min, as it keeps a pod by default", facts(warm, podUnknown, nodeNotReady), waitUntil(hence(4 * time.Minute))},
		{"after 5 min the silent node loses it", facts(warm, podUnknown, nodeNotReady, at(hence(4*time.Minute))), take(v1alpha1.ReasonNodeUnreachable)},
		{"nodeDown After: it keeps it for that time", facts(warm, podUnknown, nodeNotReady, nodeDown("After 2m")), waitUntil(hence(time.Minute))},
		{"nodeDown After: the node loses it after that time", facts(warm, podUnknown, nodeNotReady, nodeDown("After 1m")), take(v1alpha1.ReasonNodeUnreachable)},
		{"nodeDown Never: it keeps it", facts(warm, podUnknown, nodeNotReady, nodeDown(v1alpha1.NodeDownNever), at(hence(time.Hour))), leaveAlone()},
		{"a node out of service loses it at once", facts(warm, podUnknown, nodeNotReady, nodeTainted, nodeDown(v1alpha1.NodeDownNever)), take(v1alpha1.ReasonOutOfService)},
		{"the out-of-service taint on a Ready node has no effect", facts(warm, podUnknown, nodeTainted), leaveAlone()},
		{"an unknown node keeps it", facts(warm, podUnknown, nodeUnknown), leaveAlone()},
		{"a node that is gone loses it", facts(warm, podUnknown, nodeGoneSince(ago(0))), take(v1alpha1.ReasonNodeGone)},
	} {
		t.Run(row.name, func(t *testing.T) { expect(t, Decide(row.when), row.then) })
	}
}

func TestRetainedLease(t *testing.T) {
	retained := func(set Owner, asked *v1alpha1.LeaseRetention) Facts {
		return facts(inState(v1alpha1.StateRetained), podGoneSince(ago(time.Hour)), func(f *Facts) {
			f.Lease.Spec.Holder.OwnerKind, f.Lease.Spec.Holder.OwnerName = "StatefulSet", "web"
			f.Lease.Spec.Since = metav1.NewTime(ago(time.Minute))
			f.Lease.Spec.Retention = asked
			f.Owner = set
		})
	}
	set := owner.Ref{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "web"}
	scale := func(n int32) Owner {
		return Owner{Need: owner.View{Ref: set, Exists: true, Ordinals: owner.Ordinals{Replicas: n}}.Need("web-0")}
	}
	gone := Owner{Need: owner.Need{Standing: owner.Gone, Why: "it is gone"}}
	unwatched := func(standing owner.Standing) Owner {
		return Owner{Need: owner.Need{Standing: standing, Why: "the owner"}, Unwatched: true}
	}
	lasting := func(d time.Duration) *v1alpha1.LeaseRetention {
		return &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainFor, Duration: &metav1.Duration{Duration: d}}
	}
	succeeded := func(f Facts) Facts {
		f.Successor, f.Pod.Object = f.Lease.DeepCopy(), pod(holderUID)
		return f
	}
	succeededOn := func(node string, f Facts) Facts {
		f = succeeded(f)
		f.Successor.Spec.NodeName = node
		return f
	}
	reservedOf := func(f Facts) Facts {
		f.Reserved = &v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{For: &v1alpha1.ReservedFor{Namespace: "shop", StatefulSet: "db"}}}
		return f
	}
	unreadable := scale(0)
	unreadable.Unreadable = "annotation x is y"
	for _, row := range []struct {
		name string
		when Facts
		then Action
	}{
		{"is kept while its StatefulSet wants the ordinal", retained(scale(1), nil), leaveAlone()},
		{"ends when its StatefulSet does not", retained(scale(0), nil), Action{Kind: EndRetention}},
		{"ends when its StatefulSet is gone", retained(gone, nil), Action{Kind: EndRetention}},
		{"is kept when its StatefulSet could not be read", retained(Owner{}, nil), leaveAlone()},
		{"is kept until its time, and the message says so", retained(gone, lasting(time.Minute+s)), Action{Kind: Wait, Until: hence(s), Tell: true}},
		{"an owner that is not watched is read again", retained(unwatched(owner.Wanted), nil), Action{Kind: Wait, Until: hence(ownerPeriod)}},
		{"an owner that cannot be read keeps the address, and the message says so", retained(unwatched(owner.Unknown), nil), Action{Kind: Wait, Until: hence(ownerPeriod), Tell: true}},
		{"an owner that is not watched ends the retention", retained(unwatched(owner.Unwanted), nil), Action{Kind: EndRetention}},
		{"the end comes before the next read of the owner", retained(unwatched(owner.Gone), lasting(time.Minute+s)), Action{Kind: Wait, Until: hence(s), Tell: true}},
		{"the end comes after the next read of the owner", retained(unwatched(owner.Gone), lasting(time.Hour)), Action{Kind: Wait, Until: hence(ownerPeriod), Tell: true}},
		{"ends when its time has come", retained(gone, lasting(time.Minute)), Action{Kind: EndRetention}},
		{"is kept when the template's annotation is invalid, and the message says so", retained(unreadable, nil), tell("")},
		{"is kept when a node has written another address for a pod that is elsewhere", succeededOn("n2", retained(scale(1), nil)), leaveAlone()},
		{"ends when a reservation keeps the address for somebody else", reservedOf(retained(scale(1), lasting(time.Hour))), Action{Kind: EndRetention}},
		{"ends when a reservation keeps the address for somebody else, and the owner cannot be read", reservedOf(retained(Owner{}, nil)), Action{Kind: EndRetention}},
		{"ends when the pod has another address, with every policy", succeeded(retained(scale(1), lasting(time.Hour))), Action{Kind: EndRetention}},
	} {
		t.Run(row.name, func(t *testing.T) { expect(t, Decide(row.when), row.then) })
	}
}

// TestLeaseKeptForAPod: the sandbox has ended, and its DEL has fenced it.
func TestLeaseKeptForAPod(t *testing.T) {
	kept := func(changes ...change) Facts {
		f := facts(append([]change{inState(v1alpha1.StateRetained)}, changes...)...)
		f.Lease.Spec.Reason = v1alpha1.ReasonSandboxEnded
		return f
	}
	another := kept()
	another.Successor = another.Lease.DeepCopy()
	elsewhere := kept()
	elsewhere.Successor = elsewhere.Lease.DeepCopy()
	elsewhere.Successor.Spec.NodeName = "n2"
	end := Action{Kind: EndRetention}
	for _, row := range []struct {
		name string
		when Facts
		then Action
	}{
		{"is kept while the pod lives", kept(), leaveAlone()},
		{"is kept while the pod is Pending", kept(podPending), leaveAlone()},
		{"is kept while the pod's node is silent", kept(nodeNotReady), leaveAlone()},
		{"ends when a reservation keeps the address for somebody else", kept(func(f *Facts) {
			f.Reserved = &v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{For: &v1alpha1.ReservedFor{Namespace: "shop", StatefulSet: "db"}}}
		}), end},
		{"is kept if the pod could not be read", kept(podUnknown), leaveAlone()},
		{"is kept for a static pod, which is known by its config hash", kept(podStatic), leaveAlone()},
		{"is kept for a static pod whose mirror pod is Terminating", kept(podStatic, podTerminatingSince(ago(time.Hour))), leaveAlone()},
		{"is kept for a static pod whose mirror pod may be made again", kept(podGoneSince(ago(time.Minute)), podStatic), waitUntil(hence(4 * time.Minute))},
		{"ends with a static pod whose mirror pod is not made again", kept(podGoneSince(ago(5*time.Minute)), podStatic), end},
		{"ends with the pod, without a grace period", kept(podGoneSince(ago(0))), end},
		{"ends when the pod is Terminating, without a grace period", kept(podTerminatingSince(hence(20 * s))), end},
		{"ends when the pod has succeeded, without a grace period", kept(podFinished(corev1.PodSucceeded, ago(0))), end},
		{"ends when the pod has failed, without a grace period", kept(podFinished(corev1.PodFailed, ago(0))), end},
		{"ends when a pod of that name has another UID", kept(podReplacedAt(ago(0))), end},
		{"ends when the pod has another address", another, end},
		{"is kept when another node has written an address for the pod", elsewhere, leaveAlone()},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, enabled := range []bool{true, false} {
				// No holder loses an address, so it ends also while reclaim is switched off.
				row.when.Policy.Enabled = enabled
				expect(t, Decide(row.when), row.then)
			}
		})
	}
}

// TestSwitchedOff: with reclaim.enabled false nothing is taken, no pod deleted and
// no retention ended; what is Quarantined already goes on.
func TestSwitchedOff(t *testing.T) {
	for _, row := range []struct {
		name string
		when Facts
		then Action
	}{
		{"a running pod keeps its address", facts(), leaveAlone()},
		{"a lease that is not due yet waits", facts(podTerminatingSince(ago(4 * s))), waitUntil(hence(1 * s))},
		{"a terminating pod that is due keeps its address", facts(podTerminatingSince(ago(time.Hour))), withheld(v1alpha1.ReasonPodTerminating)},
		{"a finished pod keeps its address", facts(podFinished(corev1.PodFailed, ago(time.Hour))), withheld(v1alpha1.ReasonPodFinished)},
		{"a pod that is gone keeps its address", facts(podGoneSince(ago(time.Hour))), withheld(v1alpha1.ReasonPodGone)},
		{"no pod is deleted for its address", facts(nodeNotReady, nodeTainted), withheld(v1alpha1.ReasonOutOfService)},
		{"a Warm lease of a node that is gone stays", facts(inState(v1alpha1.StateWarm), podUnknown, nodeGoneSince(ago(0))), withheld(v1alpha1.ReasonNodeGone)},
		{"no retention ends", facts(inState(v1alpha1.StateRetained), func(f *Facts) {
			f.Lease.Spec.Holder.OwnerKind, f.Lease.Spec.Holder.OwnerName = "StatefulSet", "web"
			f.Owner = Owner{Need: owner.Need{Standing: owner.Gone}}
		}), withheld("")},
		{"a verification goes on", facts(quarantinedFor(v1alpha1.ReasonPodGone, ago(5*s))), Action{Kind: Reassign}},
		{"the end of a machine is passed on to the verification", facts(quarantinedFor(v1alpha1.ReasonPodGone, ago(0)), nodeGoneSince(ago(0))), take(v1alpha1.ReasonNodeGone)},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.when.Policy.Enabled = false
			expect(t, Decide(row.when), row.then)
		})
	}
}

// TestNoRunningPodLosesItsAddress walks every mixture of the words above (R12).
func TestNoRunningPodLosesItsAddress(t *testing.T) {
	nodes := []change{nil, nodeNotReady, nodeTainted, nodeGoneSince(ago(time.Hour)), nodeUnknown, nodeNeverReported}
	policies := []change{nil, terminatingOff, nodeDown(v1alpha1.NodeDownNever), nodeDown("After 0s"), nodeDown("After 1s"), unguarded, uidMissing}
	pods := []change{nil, podPending, podStatic, podOnHostNetwork}
	for i, p := range pods {
		for j, n := range nodes {
			for k, q := range policies {
				f := facts()
				for _, c := range []change{p, n, q} {
					if c != nil {
						c(&f)
					}
				}
				a := Decide(f)
				check.That(t, a.Kind != Quarantine, "pod %d, node %d, policy %d: a running pod loses its address: %s", i, j, k, a.Why)
			}
		}
	}
}

func expect(t *testing.T, got, want Action) {
	t.Helper()
	if !got.SameAs(want) || !got.Until.Equal(want.Until) || got.Tell != want.Tell || got.Withheld != want.Withheld {
		t.Errorf("got %s %s force=%v tell=%v withheld=%v until %v (%s),\nwant %s %s force=%v tell=%v withheld=%v until %v",
			got.Kind, got.Reason, got.Force, got.Tell, got.Withheld, got.Until, got.Why,
			want.Kind, want.Reason, want.Force, want.Tell, want.Withheld, want.Until)
	}
	check.That(t, got.Why != "", "%s says no why", got.Kind)
}
