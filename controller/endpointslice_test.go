// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/controlplane"
)

// endpointSlices is rule R12 as a client of a Service sees it: a pod that
// Kubernetes believes Running and Ready is on a machine that is off, or silent
// for too long. As long as an EndpointSlice offers its address as the old pod's, as
// here while the controllers of Kubernetes are away, the address is not taken.
func endpointSlices(w world, server *controlplane.Server) {
	for i, c := range []struct {
		name   string
		policy v1alpha1.NodeDownPolicy
		falls  func(string)
		reason v1alpha1.LeaseReason
		// gone: the pod's object is, too. Otherwise it is Terminating for as long
		// as its kubelet is silent, and its endpoint stays without being ready.
		gone bool
	}{
		{"out-of-service", "", func(node string) {
			w.setReady(node, corev1.ConditionUnknown)
			change(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
			})
		}, v1alpha1.ReasonOutOfService, true},
		{"silent", "After 1s", func(node string) { w.setReady(node, corev1.ConditionUnknown) }, v1alpha1.ReasonNodeUnreachable, false},
	} {
		pool, address, node := c.name+"-pool", fmt.Sprintf("10.6%d.0.2", 2+i), c.name
		change(w, w.pool(pool, fmt.Sprintf("10.6%d.0.0/24", 2+i)), func(p *v1alpha1.IPPool) { p.Spec.Reclaim.NodeDown = c.policy })
		w.readyNode(node)
		labels := map[string]string{"app": c.name}
		w.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: c.name}, Spec: corev1.ServiceSpec{
			Selector: labels, Ports: []corev1.ServicePort{{Port: 80}},
		}})
		old := w.serving(c.name+"-old", node, address, labels)
		w.bound(pool, address, old)
		w.eventually("an endpoint of "+old.Name, func() error {
			if e := w.endpoint(c.name, old); e == nil || !ptr.Deref(e.Conditions.Ready, false) {
				return fmt.Errorf("it is %+v", e)
			}
			return nil
		})

		if err := server.StopControllerManager(w.ctx); err != nil {
			w.Fatal(err)
		}
		c.falls(node)
		w.waitEvent("default", "DeletedForReclaim", old.Name, address)
		w.waitMessage(address, "", "still offers the address as the pod's")
		if err := server.StartControllerManager(); err != nil {
			w.Fatal(err)
		}
		w.waitQuarantined(address, c.reason)
		if e := w.endpoint(c.name, old); e != nil && (c.gone || ptr.Deref(e.Conditions.Ready, true)) {
			w.Errorf("%s: %s is taken, and the EndpointSlice says of its pod %+v", c.name, address, e)
		}
	}
}

// serving makes a pod that Kubernetes believes Ready.
func (w world) serving(name, node, address string, labels map[string]string) *corev1.Pod {
	w.Helper()
	pod := w.podObject("default", name, node)
	pod.Labels = labels
	w.create(pod)
	w.setPodStatus(pod, func(s *corev1.PodStatus) {
		s.Phase, s.PodIP, s.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
	return pod
}

// endpoint returns what the Service's EndpointSlice says of a pod, nil if nothing.
func (w world) endpoint(service string, pod *corev1.Pod) *discoveryv1.Endpoint {
	w.Helper()
	var slices discoveryv1.EndpointSliceList
	err := w.client.List(w.ctx, &slices, client.InNamespace("default"), client.MatchingLabels{discoveryv1.LabelServiceName: service})
	if err != nil {
		w.Fatal(err)
	}
	for _, slice := range slices.Items {
		for i := range slice.Endpoints {
			if ref := slice.Endpoints[i].TargetRef; ref != nil && ref.UID == pod.UID {
				return &slice.Endpoints[i]
			}
		}
	}
	return nil
}
