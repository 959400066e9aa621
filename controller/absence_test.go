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
		check.That(t, slices.Contains(young, lease.Spec.NodeName), "lease %s: %s verifies, want one of %v", name, lease.Spec.NodeName, young)
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
