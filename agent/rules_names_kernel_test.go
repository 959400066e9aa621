// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// names: an address that is kept for a name is its pod's, or the pod is told how
// to give it up.
func (m *machine) names(t *testing.T) {
	kept := m.pool(t, "kept", 83)
	m.pool(t, "other", 84)
	both := from("kept", "other")
	pod := m.sandbox(ofStatefulSet, both)
	addr := m.gets(t, pod, "10.70.83.").IPs[0].Address.Addr()
	uid := m.lease(addr).UID
	stays := func(when string, state v1alpha1.LeaseState) {
		t.Helper()
		if l := m.lease(addr); l == nil || l.UID != uid || l.Spec.State != state {
			t.Errorf("%s: the kept lease is %+v", when, l)
		}
	}
	check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: pod.Attachment}))
	stays("after the pod", v1alpha1.StateRetained)
	pod = m.again(t, pod, ofStatefulSet, both)
	m.gets(t, pod, addr.String())
	stays("with the next pod", v1alpha1.StateBound)
	check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: pod.Attachment}))

	// No source names the pool any longer.
	pod = m.again(t, pod, ofStatefulSet)
	m.gets(t, pod, addr.String())
	stays("with no annotation", v1alpha1.StateBound)
	check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: pod.Attachment}))

	says := addr.String() + " is kept for pod shop/" + pod.Pod.Name + ", but its pool kept does not serve the pod on node n1: "
	deleteIt := "; delete lease " + addr.String() + " to release the address"
	check(t, m.Get(t.Context(), types.NamespacedName{Name: kept.Name}, kept))
	kept.Spec.NodeName = []string{"n2"}
	check(t, m.Update(t.Context(), kept))
	pod = m.again(t, pod, ofStatefulSet, both, saying(v1alpha1.AnnotationPrefix+v1alpha1.AnnotationStaticIP, "true"))
	m.refuses(t, pod, agentapi.CodeNoPool, says+"its nodeName [n2] does not list node n1"+deleteIt)
	stays("on a node that the pool does not serve", v1alpha1.StateRetained)
	// Without the annotation the pod leaves it; the controller frees what is left behind.
	pod = m.again(t, pod, ofStatefulSet, both)
	next := m.gets(t, pod, "10.70.84.").IPs[0].Address.Addr().String()
	stays("with an address of another pool", v1alpha1.StateRetained)
	check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: pod.Attachment}))
	m.gets(t, m.again(t, pod, ofStatefulSet, from("other")), next)

	t.Run("a name that does not come back keeps nothing", func(t *testing.T) {
		bare := m.sandbox(from("other"), saying(v1alpha1.AnnotationPrefix+v1alpha1.AnnotationStaticIP, "true"))
		m.refuses(t, bare, agentapi.CodeInvalidNetworkConfig, "asks for a fixed address", "no controller creates it again", "use a StatefulSet")
	})
}

func ofStatefulSet(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "pod", UID: "u", Controller: ptr.To(true)}}
}

// again deletes the pod of an ADD and makes the next one of its name, with a
// sandbox of its own.
func (m *machine) again(t *testing.T, before agentapi.AddRequest, change ...func(*corev1.Pod)) agentapi.AddRequest {
	t.Helper()
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: before.Pod.Namespace, Name: before.Pod.Name}}
	check(t, m.Delete(t.Context(), old, client.GracePeriodSeconds(0)))
	r := m.sandbox(append(change, func(p *corev1.Pod) { p.Name = before.Pod.Name })...)
	r.Pod.Name = before.Pod.Name
	return r
}
