// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// ofSet makes a lease that of a StatefulSet's pod.
func ofSet(set string) func(*v1alpha1.Holder) {
	return func(h *v1alpha1.Holder) { h.OwnerKind, h.OwnerName = "StatefulSet", set }
}

// TestAllNodesAreReplacedWhileNoControllerIsInstalled: leases stay as they are
// without a controller; one that is installed again goes on from them, on nodes
// that have never seen any of it.
func TestAllNodesAreReplacedWhileNoControllerIsInstalled(t *testing.T) {
	w, server := newWorld(t)
	old, young := []string{"old-1", "old-2"}, []string{"new-1", "new-2"}
	for _, node := range old {
		w.readyNode(node)
	}
	uninstall := w.runController(server.Admin(), policy(), clock.RealClock{})
	w.pool("replaced", "10.70.0.0/24")
	w.statefulSet("db", 2)
	pods := make([]*corev1.Pod, len(old))
	for i, node := range old {
		pods[i] = w.runningPod(fmt.Sprintf("db-%d", i), node)
		w.bound("replaced", fmt.Sprintf("10.70.0.%d", 2+i), pods[i], ofSet("db"))
	}
	w.retained("replaced", "10.70.0.9", "gone", 0, forever)
	w.barrier("replaced", "10.70.0.10")
	uninstall()

	for i, node := range old {
		for _, o := range []client.Object{
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "agent-" + node}},
			pods[i],
		} {
			check.OK(t, w.client.Delete(w.ctx, o, client.GracePeriodSeconds(0)))
		}
	}
	for _, node := range young {
		w.readyNode(node)
	}
	// Became due while nobody looked.
	w.retained("replaced", "10.70.0.8", "gone", 1)
	next := w.runningPod("db-0", young[0])
	for _, name := range []string{"10.70.0.2", "10.70.0.3"} {
		l := w.lease(name)
		check.Must(t, l != nil && l.Spec.State == v1alpha1.StateBound, "without a controller lease %s became %+v", name, l)
	}

	w.runController(server.Admin(), policy(), clock.RealClock{})
	for i, name := range []string{"10.70.0.2", "10.70.0.3"} {
		lease := w.waitQuarantined(name, v1alpha1.ReasonNodeGone)
		if !slices.Contains(young, lease.Spec.NodeName) {
			t.Errorf("lease %s: %s verifies, want one of %v", name, lease.Spec.NodeName, young)
		}
		if h := lease.Spec.Holder; h == nil || h.Pod != pods[i].Name || h.OwnerName != "db" {
			t.Errorf("lease %s: the next %s would not find its address: %+v", name, pods[i].Name, h)
		}
	}
	w.waitGone("10.70.0.8")
	check.That(t, w.lease("10.70.0.9") != nil, "an address kept for ever was freed")
	// The agent of a new node takes the address over for the pod of that name.
	mine := w.getsBack("10.70.0.2", next)
	w.barrier("replaced", "10.70.0.11")
	l := w.lease("10.70.0.2")
	check.That(t, l != nil && l.UID == mine.UID && l.Spec.State == v1alpha1.StateBound, "the lease of the new db-0 became %+v", l)
}

// getsBack binds a Quarantined lease for the pod, again if the controller wrote
// meanwhile, as it does when it names another verifier.
func (w world) getsBack(name string, pod *corev1.Pod) (mine *v1alpha1.IPLease) {
	w.Helper()
	w.eventually(pod.Name+" gets its address back", func() error {
		if mine = w.takeOver(w.lease(name), pod); mine == nil {
			return errors.New("somebody else wrote")
		}
		return nil
	})
	return mine
}

// poweredOff: a StatefulSet's pod on a machine that lost its power goes on
// elsewhere with its address, and keeps it when the machine comes back.
func poweredOff(w world) {
	w.pool("power", "10.71.0.0/24")
	w.statefulSet("power", 1)
	w.readyNode("dark")
	pod := w.runningPod("power-0", "dark")
	w.bound("power", "10.71.0.2", pod, ofSet("power"))
	w.setReady("dark", corev1.ConditionUnknown)
	// What the taint manager does, and then a person: nobody ends the pod.
	w.deletePod(pod)
	lease := w.waitQuarantined("10.71.0.2", v1alpha1.ReasonNodeUnreachable)
	check.That(w, lease.Spec.NodeName != "dark", "a machine without power verifies")
	w.deletePod(pod, client.GracePeriodSeconds(0))
	next := w.runningPod("power-0", "n2")
	mine := w.getsBack("10.71.0.2", next)
	w.setReady("dark", corev1.ConditionTrue)
	w.barrier("power", "10.71.0.9")
	if l := w.lease("10.71.0.2"); l == nil || l.UID != mine.UID || l.Spec.State != v1alpha1.StateBound || l.Spec.Holder.PodUID != string(next.UID) {
		w.Errorf("the lease of the new power-0 became %+v", l)
	}
}

// cutOff: the node's management network is cut while its pods run. A pod that
// nobody asked to go keeps its address, however long that lasts.
func cutOff(w world) {
	w.pool("management", "10.72.0.0/24")
	w.readyNode("unheard")
	kept := w.bound("management", "10.72.0.2", w.runningPod("management-0", "unheard"))
	w.setReady("unheard", corev1.ConditionUnknown)
	// Another one's was asked to go: it is taken, so the node was looked at.
	ended := w.runningPod("management-1", "unheard")
	w.bound("management", "10.72.0.3", ended)
	w.deletePod(ended, client.GracePeriodSeconds(0))
	w.waitQuarantined("10.72.0.3", v1alpha1.ReasonNodeUnreachable)
	w.setReady("unheard", corev1.ConditionTrue)
	w.barrier("management", "10.72.0.9")
	l := w.lease(kept.Name)
	check.That(w, l != nil && l.ResourceVersion == kept.ResourceVersion, "the lease of a pod that runs became %+v", l)
}
