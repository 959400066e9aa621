// SPDX-License-Identifier: Apache-2.0

//go:build api || bench

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func (w world) pool(name, subnet string) *v1alpha1.IPPool {
	w.Helper()
	pool := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.IPPoolSpec{
			Subnet:  subnet,
			Reclaim: &v1alpha1.Reclaim{ExtraGrace: &v1alpha1.Duration{Duration: extraGrace}, Cooldown: &v1alpha1.Duration{Duration: 3 * time.Second}},
		},
	}
	w.create(pool)
	return pool
}

// bound makes the lease that the pod's agent would have made.
func (w world) bound(pool, address string, pod *corev1.Pod, edits ...func(*v1alpha1.Holder)) *v1alpha1.IPLease {
	w.Helper()
	lease := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", netip.MustParseAddr(address))},
		Spec: v1alpha1.IPLeaseSpec{
			Address: address, Pool: pool, Parent: "eth0", State: v1alpha1.StateBound,
			Since: metav1.NewTime(time.Now().Add(-time.Hour)), NodeName: pod.Spec.NodeName, Session: "node/boot",
			Holder: &v1alpha1.Holder{
				Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), Interface: "eth0",
				ContainerID: "c-" + pod.Name, MAC: "02:00:00:00:00:0a", Guarded: true,
			},
		},
	}
	for _, edit := range edits {
		edit(lease.Spec.Holder)
	}
	w.create(lease)
	return lease
}

// retained makes the lease of a StatefulSet's pod that is kept for its name.
func (w world) retained(pool, address, set string, ordinal int, edits ...func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	w.Helper()
	lease := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: address},
		Spec: v1alpha1.IPLeaseSpec{
			Address: address, Pool: pool, State: v1alpha1.StateRetained, Since: metav1.Now(),
			Holder: &v1alpha1.Holder{
				Namespace: "default", Pod: fmt.Sprintf("%s-%d", set, ordinal), OwnerKind: "StatefulSet", OwnerName: set,
			},
		},
	}
	for _, edit := range edits {
		edit(&lease.Spec)
	}
	w.create(lease)
	return lease
}

func forever(s *v1alpha1.IPLeaseSpec) {
	s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever}
}

func lasting(d time.Duration) func(*v1alpha1.IPLeaseSpec) {
	return func(s *v1alpha1.IPLeaseSpec) {
		s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainFor, Duration: &metav1.Duration{Duration: d}}
	}
}

func (w world) statefulSet(name string, replicas int32, edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	w.Helper()
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name),
		},
	}
	for _, edit := range edits {
		edit(set)
	}
	w.create(set)
	return set
}

// lease returns the lease as it is, and nil if it is gone.
func (w world) lease(name string) *v1alpha1.IPLease {
	w.Helper()
	lease := &v1alpha1.IPLease{}
	err := w.client.Get(w.ctx, types.NamespacedName{Name: name}, lease)
	check.Must(w, client.IgnoreNotFound(err) == nil, "%v", err)
	if err != nil {
		return nil
	}
	return lease
}

// waitQuarantined waits until the lease is taken for the reason.
func (w world) waitQuarantined(name string, reason v1alpha1.LeaseReason) *v1alpha1.IPLease {
	w.Helper()
	var lease *v1alpha1.IPLease
	w.eventually(fmt.Sprintf("quarantine of %s for %s", name, reason), func() error {
		if lease = w.lease(name); lease == nil {
			return errors.New("the lease is gone")
		}
		if lease.Spec.State != v1alpha1.StateQuarantined || lease.Spec.Reason != reason {
			return fmt.Errorf("it is %s (%s)", lease.Spec.State, lease.Spec.Reason)
		}
		return nil
	})
	return lease
}

// template returns a template of pods with annotations of Fenceline: names without prefix, and values.
func template(app string, annotations ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		t.Annotations[v1alpha1.AnnotationPrefix+annotations[i]] = annotations[i+1]
	}
	t.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
	return t
}
