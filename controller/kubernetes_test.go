// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// TestWithTheControllersOfKubernetes runs ours beside the real
// kube-controller-manager. Kubelets and agents are the test's.
func TestWithTheControllersOfKubernetes(t *testing.T) {
	w, server := newWorld(t)
	check.OK(t, server.StartControllerManager())
	w.readyNode("n1")
	w.readyNode("n2")
	w.runController(server.Admin(), policy(), clock.RealClock{})
	for name, test := range map[string]func(world){
		"no EndpointSlice offers an address that was given to another pod":  func(w world) { endpointSlices(w, server) },
		"StatefulSets that go quickly down and up keep all their addresses": statefulSets,
	} {
		t.Run(name, func(t *testing.T) { test(w.in(t)) })
	}
}

// namesakes is a kubelet with its agent for the pods of StatefulSets in
// namespace default: pods run at once, on n1 and n2 in turns, with the address
// of their name if there is one; ended pods leave it Retained.
type namesakes struct {
	world
	pool string

	mu sync.Mutex
	// had are the addresses that each name has had.
	had map[string][]string
	// next is the last octet of the next new address.
	next int
}

// last returns the address that each name has had last.
func (k *namesakes) last() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := map[string]string{}
	for name, had := range k.had {
		last[name] = had[len(had)-1]
	}
	return last
}

func (k *namesakes) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		var pods corev1.PodList
		if err := k.client.List(ctx, &pods, client.InNamespace("default")); err != nil {
			return // the test has ended, or the next look succeeds
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; metav1.GetControllerOf(pod) != nil {
				if err := k.sync(ctx, pod); err != nil && ctx.Err() == nil {
					k.Logf("pod %s: %v", pod.Name, err)
				}
			}
		}
	}, 10*time.Millisecond)
}

func (k *namesakes) sync(ctx context.Context, pod *corev1.Pod) error {
	switch {
	case pod.Spec.NodeName == "":
		node := []string{"n1", "n2"}[len(pod.UID)%2^int(pod.UID[0])%2]
		return k.client.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}})
	case pod.DeletionTimestamp != nil:
		return k.end(ctx, pod)
	case pod.Status.Phase == corev1.PodPending:
		return k.begin(ctx, pod)
	}
	return nil
}

// leaseOf returns the lease of a pod's name.
func (k *namesakes) leaseOf(ctx context.Context, pod string) (*v1alpha1.IPLease, error) {
	var leases v1alpha1.IPLeaseList
	if err := k.client.List(ctx, &leases, client.MatchingFields{"spec.pool": k.pool}); err != nil {
		return nil, err
	}
	for i := range leases.Items {
		if h := leases.Items[i].Spec.Holder; h != nil && h.Pod == pod {
			return &leases.Items[i], nil
		}
	}
	return nil, nil
}

// begin is ADD: the address that is kept for the name, or a new one.
func (k *namesakes) begin(ctx context.Context, pod *corev1.Pod) error {
	lease, err := k.leaseOf(ctx, pod.Name)
	if err != nil {
		return err
	}
	holder := &v1alpha1.Holder{
		Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), Interface: "eth0", ContainerID: string(pod.UID), MAC: "02:00:00:00:00:0a",
		Guarded: true, OwnerKind: "StatefulSet", OwnerName: metav1.GetControllerOf(pod).Name,
	}
	switch {
	case lease == nil:
		k.next++
		address := fmt.Sprintf("10.61.0.%d", k.next)
		lease = &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: address}, Spec: v1alpha1.IPLeaseSpec{
			Address: address, Pool: k.pool, Parent: "eth0", State: v1alpha1.StateBound, Since: metav1.Now(),
			NodeName: pod.Spec.NodeName, Session: "node/boot", Holder: holder,
		}}
		err = k.client.Create(ctx, lease)
	case lease.Spec.State == v1alpha1.StateRetained:
		lease.Spec.State, lease.Spec.Since, lease.Spec.NodeName, lease.Spec.Holder = v1alpha1.StateBound, metav1.Now(), pod.Spec.NodeName, holder
		err = k.client.Update(ctx, lease)
	case lease.Spec.Holder.PodUID != string(pod.UID):
		return fmt.Errorf("%s is still %s", lease.Name, lease.Spec.State)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.had[pod.Name] = append(k.had[pod.Name], lease.Spec.Address)
	k.mu.Unlock()
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, lease.Spec.Address
	pod.Status.PodIPs = []corev1.PodIP{{IP: lease.Spec.Address}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return k.client.Status().Update(ctx, pod)
}

// end is DEL and the end of the pod.
func (k *namesakes) end(ctx context.Context, pod *corev1.Pod) error {
	lease, err := k.leaseOf(ctx, pod.Name)
	if err != nil {
		return err
	}
	if lease != nil && lease.Spec.State == v1alpha1.StateBound && lease.Spec.Holder.PodUID == string(pod.UID) {
		lease.Spec.State, lease.Spec.Since, lease.Spec.NodeName, lease.Spec.Session = v1alpha1.StateRetained, metav1.Now(), "", ""
		lease.Spec.Holder.ContainerID = ""
		if err := k.client.Update(ctx, lease); err != nil {
			return err
		}
	}
	return client.IgnoreNotFound(k.client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
}

// statefulSets: two of them share a pool; one starts its ordinals at 3, both
// make and end their pods in parallel. What the real controller of StatefulSets
// makes of quick changes is served; names that stay wanted keep their address.
func statefulSets(w world) {
	const replicas, rounds = 4, 3
	w.pool("namesakes", "10.61.0.0/24")
	ctx, cancel := context.WithCancel(w.ctx)
	k, done := &namesakes{world: w, pool: "namesakes", had: map[string][]string{}}, make(chan struct{})
	go func() { k.run(ctx); close(done) }()
	defer func() { cancel(); <-done }()

	parallel := func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }
	sets := []*appsv1.StatefulSet{
		w.statefulSet("east", replicas, parallel, annotated(v1alpha1.AnnotationPrefix+v1alpha1.AnnotationStaticIP, "true")),
		w.statefulSet("west", replicas, parallel, func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 3} }),
	}
	ready := func(n int32) {
		w.Helper()
		for _, set := range sets {
			w.eventually(fmt.Sprintf("%d pods of %s", n, set.Name), func() error {
				if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(set), set); err != nil {
					return err
				}
				s := set.Status
				return unless(s.ObservedGeneration == set.Generation && s.ReadyReplicas == n && s.Replicas == n && s.UpdatedReplicas == n,
					"%d of %d are Ready", s.ReadyReplicas, s.Replicas)
			})
		}
	}
	scale := func(n int32) {
		for _, set := range sets {
			change(w, set, func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To(n) })
		}
	}
	ready(replicas)
	for range rounds {
		// Some pods have ended, some have not, when they are wanted again.
		scale(1)
		scale(replicas)
		ready(replicas)
	}
	// An update replaces each pod. Each name keeps its address.
	before := k.last()
	for _, set := range sets {
		change(w, set, func(s *appsv1.StatefulSet) {
			s.Spec.Template.Labels = map[string]string{"app": set.Name, "version": "2"}
		})
	}
	ready(replicas)
	check.Same(w, k.last(), before, "the addresses after an update")
	// What is kept for ever comes back after a scale-in that has come to its end.
	scale(0)
	ready(0)
	w.eventually("the end of what nobody keeps", func() error {
		var leases v1alpha1.IPLeaseList
		if err := w.client.List(w.ctx, &leases, client.MatchingFields{"spec.pool": "namesakes"}); err != nil {
			return err
		}
		for _, l := range leases.Items {
			if l.Spec.Holder.OwnerName == "west" {
				return fmt.Errorf("%s is %s for %s", l.Name, l.Spec.State, l.Spec.Holder.Pod)
			}
		}
		return nil
	})
	scale(replicas)
	ready(replicas)

	k.mu.Lock()
	defer k.mu.Unlock()
	addresses := map[string]string{}
	for ordinal := range replicas {
		name := fmt.Sprintf("east-%d", ordinal)
		check.Equal(w, len(slices.Compact(slices.Clone(k.had[name]))), 1, "%s is kept for ever and had %v: addresses", name, k.had[name])
		check.That(w, k.had[fmt.Sprintf("west-%d", ordinal+3)] != nil, "west-%d had no address", ordinal+3)
	}
	for name, had := range k.had {
		for _, address := range had {
			other, taken := addresses[address]
			check.That(w, !taken || other == name || !strings.HasPrefix(other, "east"), "%s was %s's and %s's", address, other, name)
			addresses[address] = name
		}
	}

}
