// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/owners"
)

// TestPoolsOfOwnersOfOtherProjects gives pools to owners of other API groups. Their custom resources come
// after the controller has started.
func TestPoolsOfOwnersOfOtherProjects(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.runController(server.Admin(), policy(), clock.RealClock{})
	w.subnet("others", "10.93.0.0/24")
	check.OK(t, owners.Install(w.ctx, server.Admin(), append(owners.Machines(), owners.StatefulSets())...))
	t.Run("with a scale, the pool follows the replicas", func(t *testing.T) { scaledOwner(w.in(t)) })
	t.Run("without a scale, the number is fixed", func(t *testing.T) { unscaledOwner(w.in(t)) })
	t.Run("an owner that cannot be read stops nobody else", func(t *testing.T) { unreadOwner(w.in(t)) })
	w.checkDisjoint()
}

// unreadOwner has a scale without replicas, which the API server answers with an internal error.
func unreadOwner(w world) {
	set := owners.StatefulSet("default", "unread", 2)
	w.create(set)
	w.podOf(set, "unread-0", "+1")
	pool := w.waitPool("unread", 3)
	change(w, set, func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "spec", "replicas") })
	w.podOf(set, "unread-1", "+1")
	w.waitUnserved("others", "unread", "cannot be read now")
	w.deployment("beside", 1, "subnet", `{"ipv4":["others"]}`)
	w.waitPool("beside", 2)
	now := w.waitPool("unread", 3)
	check.That(w, now.Name == pool.Name, "pool %s became %s", pool.Name, now.Name)
	// Without pods, the pool of an owner that cannot be read stays as well.
	for _, name := range []string{"unread-0", "unread-1"} {
		w.remove(w.podObject("default", name, "n1"), client.GracePeriodSeconds(0))
	}
	w.barrierSubnet("others")
	w.waitPool("unread", 3)
	scale(w, set, 4)
	w.podOf(set, "unread-3", "+1")
	w.waitPool("unread", 5)
}

func scaledOwner(w world) {
	set := owners.StatefulSet("default", "kruise", 2)
	w.create(set)
	w.podOf(set, "kruise-0", "+1")
	pool := w.waitPool("kruise", 3)
	a := pool.Spec.Application
	check.That(w, a.APIGroup == "apps.kruise.io" && a.Kind == "StatefulSet", "the pool is that of %+v", a)
	scale(w, set, 4)
	last := w.podOf(set, "kruise-3", "+1")
	lease := w.bound(pool.Name, "10.93.0.5", last)
	w.waitPool("kruise", 5)
	scale(w, set, 0)
	w.podOf(set, "kruise-1", "+1")
	w.waitPool("kruise", 1) // the address in use

	check.OK(w, w.client.Delete(w.ctx, set))
	for _, name := range []string{"kruise-0", "kruise-1", "kruise-3"} {
		w.remove(w.podObject("default", name, "n1"), client.GracePeriodSeconds(0))
	}
	w.barrierSubnet("others")
	check.That(w, len(w.poolsOf("kruise")) == 1, "the pool of an address in use is gone")
	check.OK(w, w.client.Delete(w.ctx, lease))
	w.waitNoPool("kruise")
}

func unscaledOwner(w world) {
	flexible, fixed := owners.Instance("default", "flexible"), owners.Instance("default", "fixed")
	w.create(flexible)
	w.create(fixed)
	w.podOf(flexible, "virt-launcher-flexible", "+1")
	w.waitUnserved("others", "flexible", "give a fixed number in the annotation ippool-ip-number")
	w.waitEvent("default", "SubnetUnserved", "flexible", "ippool-ip-number")
	pod := w.podOf(fixed, "virt-launcher-fixed", "2")
	w.waitPool("fixed", 2)
	if pools := w.poolsOf("flexible"); len(pools) > 0 {
		w.Errorf("%s has pool %s", "flexible", pools[0].Name)
	}
	w.remove(pod, client.GracePeriodSeconds(0))
	w.waitNoPool("fixed")
}

// podOf makes a pod of an owner that asks for a pool of the IPSubnet others with so many addresses.
func (w world) podOf(o *unstructured.Unstructured, name, number string) *corev1.Pod {
	w.Helper()
	pod := w.podObject("default", name, "n1")
	pod.Annotations = template(name, "subnet", `{"ipv4":["others"]}`, "ippool-ip-number", number).Annotations
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, o.GroupVersionKind())}
	w.create(pod)
	return pod
}

// scale sets the replicas of an owner.
func scale(w world, o *unstructured.Unstructured, replicas int64) {
	w.Helper()
	change(w, o, func(o *unstructured.Unstructured) {
		check.OK(w, unstructured.SetNestedField(o.Object, replicas, "spec", "replicas"))
	})
}
