// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

func (m *machine) exhaustion(t *testing.T) {
	m.pool(t, "one", 65, func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.70.65.2"} })
	first, second := m.sandbox(from("one")), m.sandbox(from("one"))
	m.gets(t, first, "10.70.65.2")
	m.refuses(t, second, agentapi.CodeExhausted, "pool one: it is exhausted, 1 of its 1 addresses have a lease")
	check.OK(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: first.Attachment}))
	// It cools down, and nothing else is free.
	m.gets(t, second, "10.70.65.2")
}

func (m *machine) edits(t *testing.T) {
	p := m.pool(t, "edited", 66)
	change := func(c func(*v1alpha1.IPPoolSpec)) {
		t.Helper()
		check.OK(t, m.Get(t.Context(), types.NamespacedName{Name: p.Name}, p))
		c(&p.Spec)
		check.OK(t, m.Update(t.Context(), p))
	}
	user := m.sandbox(from("edited"))
	used := m.gets(t, user, "10.70.66.").IPs[0].Address.Addr()
	stays := func(when string) {
		t.Helper()
		l := m.lease(used)
		if err := m.agent.Check(t.Context(), agentapi.CheckRequest{Attachment: user.Attachment}); err != nil || l == nil || l.Spec.State != v1alpha1.StateBound {
			t.Errorf("%s: lease %+v, CHECK %v", when, l, err)
		}
	}
	yes := true
	change(func(s *v1alpha1.IPPoolSpec) { s.Disable = &yes })
	m.refuses(t, m.sandbox(from("edited")), agentapi.CodeNoPool, "pool edited: it is disabled")
	stays("disabled")
	change(func(s *v1alpha1.IPPoolSpec) { s.Disable, s.IPs = nil, []string{"10.70.66.99"} })
	m.gets(t, m.sandbox(from("edited")), "10.70.66.99")
	stays("outside of ips")
	m.refuses(t, m.sandbox(from("edited")), agentapi.CodeExhausted, "pool edited: it is exhausted")
	// A newer sandbox of the pod keeps the address, which is in no pool any more.
	newer := m.sandbox()
	newer.Pod = user.Pod
	m.gets(t, newer, used.String())
}

// keptForAName: the address of a pod of a StatefulSet waits for the next pod of its name, which no source
// leads to the pool any longer.
func (m *machine) keptForAName(t *testing.T) {
	ofStatefulSet := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "pod", UID: "u", Controller: new(true)}}
	}
	m.pool(t, "kept", 83)
	pod := m.sandbox(ofStatefulSet, from("kept"))
	addr := m.gets(t, pod, "10.70.83.").IPs[0].Address.Addr()
	uid := m.lease(addr).UID
	is := func(state v1alpha1.LeaseState) {
		t.Helper()
		if l := m.lease(addr); l == nil || l.UID != uid || l.Spec.State != state {
			t.Errorf("the lease is %+v, want %s", l, state)
		}
	}
	check.OK(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: pod.Attachment}))
	is(v1alpha1.StateRetained)
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Pod.Namespace, Name: pod.Pod.Name}}
	check.OK(t, m.Delete(t.Context(), old, client.GracePeriodSeconds(0)))
	next := m.sandbox(ofStatefulSet, func(p *corev1.Pod) { p.Name = pod.Pod.Name })
	next.Pod.Name = pod.Pod.Name
	m.gets(t, next, addr.String())
	is(v1alpha1.StateBound)
}
