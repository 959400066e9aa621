// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// TestController runs one controller against one API server. Its subtests have
// pools, nodes and pods of their own.
func TestController(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.readyNode("n2")
	said := &auditLog{}
	w.runLogging(server.Admin(), policy(), clock.RealClock{}, said)
	t.Run("together", func(t *testing.T) {
		for name, test := range map[string]func(world){
			"a pod Terminating past deletionTimestamp and extraGrace loses its address":  terminating,
			"a force-deleted pod loses its address after extraGrace":                     forceDeleted,
			"a pod replaced by one with another UID loses its address":                   replaced,
			"a finished pod loses its address":                                           finished,
			"a pod whose node is gone loses its address":                                 nodeGone,
			"a running pod is deleted before its address is taken":                       deletedFirst,
			"a pod replaced on a silent node: another node verifies":                     silentNode,
			"an unguarded holder on a silent node is waited for":                         unguarded,
			"a verifier without progress is changed":                                     reassigned,
			"a retained lease ends when its StatefulSet is scaled in":                    scaledIn,
			"a retained lease ends with its StatefulSet":                                 statefulSetGone,
			"a lease without pool says so":                                               withoutPool,
			"a lease outside its pool says so":                                           outsidePool,
			"an evicted pod without container statuses loses its address":                evicted,
			"a static pod is known by its config hash":                                   staticPod,
			"a pod of a silent node is deleted after nodeDown's time":                    nodeDownAfter,
			"a StatefulSet's pod goes on without the machine that lost its power":        poweredOff,
			"a pod that runs behind a cut management network keeps its address":          cutOff,
			"a pool keeps what the cluster would take from a silent node":                nodeDownNever,
			"a Warm lease does not outlast its node's silence":                           warmOnSilentNode,
			"a pod that nobody has ever seen loses its address":                          neverWas,
			"a pod on the host's network is never touched":                               onHostNetwork,
			"a pool keeps what stays Terminating":                                        terminatingOff,
			"an event is told whatever names it has":                                     longNames,
			"the template's annotations decide, and can be changed":                      templateChanged,
			"a template that cannot be read ends no retention, and says so":              templateUnreadable,
			"a retention for a time ends when it is over":                                lastingRetention,
			"the pool's limit ends a retention":                                          cappedRetention,
			"ordinals.start moves what a StatefulSet wants":                              ordinalsStart,
			"a retained lease is counted, and freed by its deletion":                     freedByHand,
			"an owner whose kind is not served keeps the address, and the lease says so": ownerNotServed,
			"an address that is kept for a pod ends with the pod":                        keptForPods,
			"a retained lease ends when the next pod of its name has another address":    succeeded,
			"two StatefulSets that share a pool go quickly down and up":                  downAndUp,
			"status and bitmap are published":                                            published,
			"an invalid pool is not ready":                                               invalidPool,
			"a pool keeps durations that Go writes otherwise":                            otherDurations,
			"overlapping pools say so":                                                   overlapping,
			"a pool is deleted after its last lease":                                     finalizer,
			"agents have indexes":                                                        indexes,
			"there is a claim key":                                                       claimKey,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(w.in(t))
			})
		}
	})
	t.Run("then each reason has been told by event, metric and audit line", func(t *testing.T) { w.in(t).reasonsAreTold(said) })
}

func terminating(w world) {
	w.pool("terminating", "10.1.0.0/24")
	pod := w.runningPod("terminating-0", "n1")
	token, err := strconv.ParseInt(w.bound("terminating", "10.1.0.2", pod).ResourceVersion, 10, 64)
	if err != nil {
		w.Fatal(err)
	}
	w.deletePod(pod)
	if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		w.Fatal(err)
	}
	due := pod.DeletionTimestamp.Add(extraGrace)

	lease := w.waitQuarantined("10.1.0.2", v1alpha1.ReasonPodTerminating)
	if now := time.Now(); now.Before(due) {
		w.Errorf("taken %s too early", due.Sub(now))
	}
	if lease.Spec.NodeName != "n1" {
		w.Errorf("%s verifies, want n1, the holder's own node", lease.Spec.NodeName)
	}
	want := v1alpha1.PreviousHolder{
		Node: "n1", Session: "node/boot", PodUID: string(pod.UID), MAC: "02:00:00:00:00:0a", Token: token, Guarded: true,
		Reason: v1alpha1.ReasonPodTerminating,
	}
	got := *lease.Spec.Previous
	got.Since = metav1.Time{}
	if got != want {
		w.Errorf("previous holder %+v, want %+v", got, want)
	}
	if h := lease.Spec.Holder; h == nil || h.Pod != pod.Name {
		w.Errorf("the holder's identity was lost: %+v", h)
	}
	w.waitEvent(pod.Namespace, "AddressReclaimed", pod.Name, "10.1.0.2", string(pod.UID), "PodTerminating", "n1 verifies")
	w.waitMetric("fenceline_reclaims_total reason=PodTerminating", func(v float64) bool { return v >= 1 })
	w.waitMetric("fenceline_quarantined_addresses pool=terminating reason=PodTerminating", func(v float64) bool { return v == 1 })
}

func forceDeleted(w world) {
	w.pool("forced", "10.2.0.0/24")
	pod := w.runningPod("forced-0", "n1")
	w.bound("forced", "10.2.0.2", pod)
	w.waitBound("forced", 1) // a controller that has not seen both says PodGone
	deleted := time.Now()
	w.deletePod(pod, client.GracePeriodSeconds(0))

	w.waitQuarantined("10.2.0.2", v1alpha1.ReasonPodDeleted)
	if waited := time.Since(deleted); waited < extraGrace {
		w.Errorf("taken after %s: the agent's DEL has %s", waited, extraGrace)
	}
}

func replaced(w world) {
	w.pool("replaced", "10.3.0.0/24")
	pod := w.runningPod("replaced-0", "n1")
	w.bound("replaced", "10.3.0.2", pod)
	w.deletePod(pod, client.GracePeriodSeconds(0))
	w.runningPod("replaced-0", "n2")

	lease := w.waitQuarantined("10.3.0.2", v1alpha1.ReasonPodReplaced)
	if lease.Spec.Previous.PodUID != string(pod.UID) {
		w.Errorf("taken from %s, want %s", lease.Spec.Previous.PodUID, pod.UID)
	}
}

func finished(w world) {
	w.pool("finished", "10.4.0.0/24")
	pod := w.runningPod("finished-0", "n1")
	w.bound("finished", "10.4.0.2", pod)
	w.setPodStatus(pod, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodSucceeded
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "none", ImageID: "none",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}}}
	})
	w.waitQuarantined("10.4.0.2", v1alpha1.ReasonPodFinished)
}

func nodeGone(w world) {
	w.pool("nodegone", "10.5.0.0/24")
	w.readyNode("leaving")
	pod := w.runningPod("nodegone-0", "leaving")
	w.bound("nodegone", "10.5.0.2", pod)
	w.bound("nodegone", "10.5.0.3", w.runningPod("nodegone-1", "n2"))
	w.waitBound("nodegone", 2)

	// What a cloud's controller and the pod garbage collector do.
	if err := w.client.Delete(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "leaving"}}); err != nil {
		w.Fatal(err)
	}
	w.deletePod(pod, client.GracePeriodSeconds(0))

	lease := w.waitQuarantined("10.5.0.2", v1alpha1.ReasonNodeGone)
	if lease.Spec.NodeName != "n2" {
		w.Errorf("%s verifies, want n2, which has a lease of the pool", lease.Spec.NodeName)
	}
}

// deletedFirst is rule R12: a pod that Kubernetes believes Running, on a node
// that a person says is off.
func deletedFirst(w world) {
	w.pool("first", "10.6.0.0/24")
	w.readyNode("off")
	pod := w.runningPod("first-0", "off")
	w.bound("first", "10.6.0.2", pod)
	w.setReady("off", corev1.ConditionUnknown)
	change(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "off"}}, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	})

	lease := w.waitQuarantined("10.6.0.2", v1alpha1.ReasonOutOfService)
	if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
		w.Errorf("the address was taken from a pod that Kubernetes believes %s (%v)", pod.Status.Phase, err)
	}
	if lease.Spec.NodeName == "off" {
		w.Error("a node that is off verifies")
	}
	w.waitEvent("default", "DeletedForReclaim", pod.Name, "10.6.0.2", "OutOfService")
}

func silentNode(w world) {
	w.pool("silent", "10.7.0.0/24")
	w.readyNode("cut")
	w.bound("silent", "10.7.0.3", w.runningPod("silent-1", "n2"))
	w.waitBound("silent", 1)
	pod := w.runningPod("silent-0", "cut")
	w.setReady("cut", corev1.ConditionUnknown)
	w.deletePod(pod, client.GracePeriodSeconds(0))
	w.runningPod("silent-0", "n1")
	w.bound("silent", "10.7.0.2", pod, func(h *v1alpha1.Holder) { h.OwnerKind, h.OwnerName = "StatefulSet", "silent" })

	lease := w.waitQuarantined("10.7.0.2", v1alpha1.ReasonNodeUnreachable)
	if lease.Spec.NodeName != "n2" {
		w.Errorf("%s verifies, want n2, which has a lease of the pool", lease.Spec.NodeName)
	}
	if h := lease.Spec.Holder; h.Pod != "silent-0" || h.OwnerName != "silent" {
		w.Errorf("holder %+v: the next silent-0 would not find its address", h)
	}
}

func unguarded(w world) {
	w.pool("unguarded", "10.8.0.0/24")
	w.readyNode("vfio")
	pod := w.runningPod("unguarded-0", "vfio")
	w.bound("unguarded", "10.8.0.2", pod, func(h *v1alpha1.Holder) { h.Guarded = false })
	w.setReady("vfio", corev1.ConditionUnknown)
	w.deletePod(pod, client.GracePeriodSeconds(0))

	w.eventually("a message", func() error {
		l := w.lease("10.8.0.2")
		if !strings.Contains(l.Spec.Message, "without a guard") {
			return fmt.Errorf("it says %q", l.Spec.Message)
		}
		return nil
	})
	if l := w.lease("10.8.0.2"); l.Spec.State != v1alpha1.StateBound {
		w.Errorf("the lease is %s", l.Spec.State)
	}
	w.setReady("vfio", corev1.ConditionTrue)
	w.waitQuarantined("10.8.0.2", v1alpha1.ReasonPodDeleted)
}

func reassigned(w world) {
	w.pool("reassigned", "10.9.0.0/24")
	pod := w.runningPod("reassigned-0", "n1")
	w.bound("reassigned", "10.9.0.2", pod)
	w.bound("reassigned", "10.9.0.3", w.runningPod("reassigned-1", "n2"))
	w.deletePod(pod, client.GracePeriodSeconds(0))
	first := w.waitQuarantined("10.9.0.2", v1alpha1.ReasonPodDeleted)
	if first.Spec.NodeName != "n1" {
		w.Fatalf("%s verifies first, want n1", first.Spec.NodeName)
	}
	w.eventually("another verifier", func() error {
		if node := w.lease("10.9.0.2").Spec.NodeName; node != "n2" {
			return fmt.Errorf("it is %s", node)
		}
		return nil
	})
	if waited := time.Since(first.Spec.Since.Time); waited < 5*time.Second {
		w.Errorf("changed after %s, a verifier has 5 s", waited)
	}
}

func scaledIn(w world) {
	w.pool("scaled", "10.10.0.0/24")
	set := w.statefulSet("scaled", 2)
	w.retained("scaled", "10.10.0.2", "scaled", 0)
	w.retained("scaled", "10.10.0.3", "scaled", 1)
	change(w, set, func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](1) })
	w.waitGone("10.10.0.3")
	if w.lease("10.10.0.2") == nil {
		w.Error("the address of an ordinal that is wanted was freed")
	}
}

func statefulSetGone(w world) {
	w.pool("gone", "10.11.0.0/24")
	set := w.statefulSet("gone", 1)
	w.retained("gone", "10.11.0.2", "gone", 0)
	w.retained("gone", "10.11.0.3", "gone", 0, forever)
	if err := w.client.Delete(w.ctx, set); err != nil {
		w.Fatal(err)
	}
	w.waitGone("10.11.0.2")
	if w.lease("10.11.0.3") == nil {
		w.Error("an address retained for ever was freed")
	}
}

func withoutPool(w world) {
	lease := w.bound("nowhere", "10.12.0.2", w.runningPod("nowhere-0", "n1"))
	w.waitMessage(lease.Name, v1alpha1.ReasonPoolGone, "pool nowhere does not exist")
	w.waitEvent("default", "PoolGone", lease.Name, "ends with its holder")
	if l := w.lease(lease.Name); l.Spec.State != v1alpha1.StateBound {
		w.Errorf("the lease of a pod that runs is %s", l.Spec.State)
	}
}
