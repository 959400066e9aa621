// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

const ipRetention = v1alpha1.AnnotationPrefix + v1alpha1.AnnotationIPRetention

// annotated gives the pods' template an annotation.
func annotated(key, value string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Spec.Template.Annotations = map[string]string{key: value} }
}

// barrier waits until the controller has ended the retention of a lease that is
// due, so that whatever was due before has been looked at.
func (w world) barrier(pool, address string) {
	w.Helper()
	w.retained(pool, address, "nobodys", 0)
	w.waitGone(address)
}

func templateChanged(w world) {
	w.pool("template", "10.50.0.0/24")
	set := w.statefulSet("template", 1, annotated(v1alpha1.LegacyAnnotationPrefix+v1alpha1.AnnotationStaticIP, "true"))
	// What the lease recorded does not count while the StatefulSet exists.
	w.retained("template", "10.50.0.2", "template", 7, lasting(0))
	w.retained("template", "10.50.0.3", "template", 0, lasting(0))
	w.barrier("template", "10.50.0.9")
	check.Must(w, w.lease("10.50.0.2") != nil, "freed although the template says static-ip")
	change(w, set, annotated(v1alpha1.AliasIPRetention, "48"))
	w.waitMessage("10.50.0.2", "", "kept until")
	change(w, set, annotated(ipRetention, "two days"))
	w.waitMessage("10.50.0.2", "", `StatefulSet default/template: annotation ipam.fenceline.io/ip-retention is "two days"`)
	change(w, set, annotated(ipRetention, "0"))
	w.waitGone("10.50.0.2")
	check.That(w, w.lease("10.50.0.3") != nil, "freed although the StatefulSet wants the pod")
}

func cappedRetention(w world) {
	pool := w.pool("capped", "10.53.0.0/24")
	since := func(age time.Duration) func(*v1alpha1.IPLeaseSpec) {
		return func(s *v1alpha1.IPLeaseSpec) { s.Since = metav1.NewTime(time.Now().Add(-age)) }
	}
	w.retained("capped", "10.53.0.2", "capped", 0, forever, since(2*time.Minute))
	w.retained("capped", "10.53.0.3", "capped", 1, forever, since(0))
	w.barrier("capped", "10.53.0.9")
	check.Must(w, w.lease("10.53.0.2") != nil, "freed without a limit")
	change(w, pool, func(p *v1alpha1.IPPool) {
		p.Spec.Retention = &v1alpha1.PoolRetention{Max: &v1alpha1.Duration{Duration: time.Minute}}
	})
	w.waitGone("10.53.0.2")
	w.waitMessage("10.53.0.3", "", "the pool retains no address longer than 1m0s")
}

// ownerNotServed: nobody has installed the custom resources of these owners, or somebody has removed
// them.
func ownerNotServed(w world) {
	w.pool("foreign", "10.59.0.0/24")
	of := func(group, kind string) func(*v1alpha1.IPLeaseSpec) {
		return func(s *v1alpha1.IPLeaseSpec) {
			s.Holder.OwnerGroup, s.Holder.OwnerKind = group, kind
			lasting(0)(s)
		}
	}
	w.retained("foreign", "10.59.0.2", "kruise", 0, of("apps.kruise.io", "StatefulSet"))
	w.retained("foreign", "10.59.0.3", "machine", 0, of("kubevirt.io", "VirtualMachineInstance"))
	w.waitMessage("10.59.0.2", "", "StatefulSet.apps.kruise.io default/kruise: the API server does not serve this kind")
	w.waitMessage("10.59.0.3", "", "default/machine: the API server does not serve this kind")
	w.waitMetric("fenceline_unknown_owners_total reason=NoAPI", func(v float64) bool { return v >= 2 })
	w.barrier("foreign", "10.59.0.9")
	check.That(w, w.lease("10.59.0.2") != nil && w.lease("10.59.0.3") != nil, "freed although nobody knows whether the owner wants it")
}

// succeeded: the annotation of a StatefulSet's template has left a pool, so that
// the next pod has got an address of another.
func succeeded(w world) {
	w.pool("left", "10.98.0.0/24")
	w.pool("moved-to", "10.99.0.0/24")
	w.statefulSet("moved", 1)
	eth0 := func(s *v1alpha1.IPLeaseSpec) { s.Holder.Interface = "eth0" }
	net1 := func(s *v1alpha1.IPLeaseSpec) { s.Holder.Interface = "net1" }
	early := w.retained("left", "10.98.0.2", "moved", 0, eth0, forever)
	other := w.retained("left", "10.98.0.3", "moved", 0, net1, forever)
	w.barrier("left", "10.98.0.9")
	check.Must(w, w.lease(early.Name) != nil, "freed although the StatefulSet wants the pod")
	pod := w.runningPod("moved-0", "n1")
	now := w.retained("moved-to", "10.99.0.2", "moved", 0, eth0, forever)
	w.eventually("the pod takes its lease, whose message the controller may write", func() error {
		now = w.lease(now.Name)
		check.Must(w, now != nil, "the lease is not there")
		if w.takeOver(now, pod) == nil {
			return errors.New("it was written meanwhile")
		}
		return nil
	})
	w.waitGone(early.Name)
	w.waitEvent("default", "RetentionEnded", early.Name, "pod default/moved-0 now has 10.99.0.2 on interface eth0")
	// One that was being verified meanwhile.
	w.waitGone(w.retained("left", "10.98.0.4", "moved", 0, eth0, forever).Name)
	w.barrier("left", "10.98.0.9")
	check.That(w, w.lease(other.Name) != nil && w.lease(now.Name) != nil, "what another interface has, or the new address, was freed")
}

// keptForPods: the sandboxes of living pods have ended, and their next sandboxes get the addresses.
func keptForPods(w world) {
	w.pool("sandboxes", "10.57.0.0/24")
	kept := func(address, name string) (*v1alpha1.IPLease, *corev1.Pod) {
		pod := w.runningPod(name, "n1")
		lease := w.bound("sandboxes", address, pod)
		change(w, lease, func(l *v1alpha1.IPLease) {
			l.Spec.State, l.Spec.Reason, l.Spec.Holder.ContainerID = v1alpha1.StateRetained, v1alpha1.ReasonSandboxEnded, ""
		})
		return lease, pod
	}
	living, _ := kept("10.57.0.2", "sandbox-lives")
	for address, end := range map[string]func(*corev1.Pod){
		"10.57.0.3": func(p *corev1.Pod) { w.remove(p) },
		"10.57.0.4": func(p *corev1.Pod) { w.remove(p, client.GracePeriodSeconds(0)) },
		"10.57.0.5": func(p *corev1.Pod) { w.setPodStatus(p, func(s *corev1.PodStatus) { s.Phase = corev1.PodFailed }) },
		"10.57.0.6": func(p *corev1.Pod) { w.bound("sandboxes", "10.57.0.16", p) },
	} {
		lease, pod := kept(address, "sandbox-"+address[len(address)-1:])
		end(pod)
		w.waitGone(lease.Name)
		w.waitEvent("default", "RetentionEnded", lease.Name, "pod default/"+pod.Name)
	}
	w.barrier("sandboxes", "10.57.0.9")
	check.That(w, w.lease(living.Name) != nil && w.lease("10.57.0.16") != nil, "freed although its pod lives")
}

// takeOver binds a Retained lease as the agent of its pod's new node does. It
// returns nil if the controller was faster.
func (w world) takeOver(lease *v1alpha1.IPLease, pod *corev1.Pod) *v1alpha1.IPLease {
	next := lease.DeepCopy()
	next.Spec.State, next.Spec.NodeName, next.Spec.Session = v1alpha1.StateBound, "n1", "node/boot"
	next.Spec.Holder.PodUID, next.Spec.Holder.ContainerID = string(pod.UID), "c"
	if err := w.client.Update(w.ctx, next); err != nil {
		return nil // somebody else wrote or deleted it
	}
	return next
}
