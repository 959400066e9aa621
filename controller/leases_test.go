// SPDX-License-Identifier: Apache-2.0

//go:build api || bench

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

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

// quarantined counts the Quarantined leases.
func (w world) quarantined() int {
	w.Helper()
	var leases v1alpha1.IPLeaseList
	check.OK(w, w.client.List(w.ctx, &leases, client.MatchingFields{"spec.state": string(v1alpha1.StateQuarantined)}))
	return len(leases.Items)
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

func (w world) waitGone(lease string) {
	w.Helper()
	w.eventually("end of lease "+lease, func() error {
		if l := w.lease(lease); l != nil {
			return fmt.Errorf("it is %s", l.Spec.State)
		}
		return nil
	})
}

// waitMessage waits until the lease carries the reason, and a message with the words.
func (w world) waitMessage(name string, reason v1alpha1.LeaseReason, words string) {
	w.Helper()
	w.eventually("message on lease "+name, func() error {
		l := w.lease(name)
		if l == nil {
			return errors.New("the lease is gone")
		}
		if l.Spec.Reason != reason || !strings.Contains(l.Spec.Message, words) {
			return fmt.Errorf("it says %s: %q", l.Spec.Reason, l.Spec.Message)
		}
		return nil
	})
}

// waitEvent waits for an event about an object of that name, with all the words.
func (w world) waitEvent(namespace, reason, about string, words ...string) {
	w.Helper()
	w.waitEventAbout(namespace, reason, about, func(o corev1.ObjectReference) bool { return o.Name == about }, words)
}

// waitEventOf waits for an event about an object that kubectl describe shows: it names the UID.
func (w world) waitEventOf(o client.Object, reason string, words ...string) {
	w.Helper()
	w.waitEventAbout(o.GetNamespace(), reason, o.GetName(), func(about corev1.ObjectReference) bool { return about.UID == o.GetUID() }, words)
}

func (w world) waitEventAbout(namespace, reason, name string, is func(corev1.ObjectReference) bool, words []string) {
	w.Helper()
	w.eventually(fmt.Sprintf("event %s about %s", reason, name), func() error {
		var list eventsv1.EventList
		if err := w.client.List(w.ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var heard []string
		for _, e := range list.Items {
			if e.Reason != reason || !is(e.Regarding) {
				continue
			}
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Note, word) }) {
				return nil
			}
			heard = append(heard, e.Note)
		}
		return fmt.Errorf("heard %q", heard)
	})
}

// waitMetric waits until the series, "name label=value label=value", has a value that is right.
func (w world) waitMetric(series string, right func(float64) bool) {
	w.Helper()
	w.eventually("metric "+series, func() error {
		families, err := ctrlmetrics.Registry.Gather()
		if err != nil {
			return err
		}
		for _, f := range families {
			for _, m := range f.Metric {
				key := f.GetName()
				for _, l := range m.Label {
					key += " " + l.GetName() + "=" + l.GetValue()
				}
				value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
				if key == series && right(value) {
					return nil
				}
				if key == series {
					return fmt.Errorf("it is %v", value)
				}
			}
		}
		return errors.New("there is none")
	})
}
