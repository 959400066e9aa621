// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// seen is how long the agent may take to see what a test has written, and to
// act upon it, on a busy machine.
const seen = time.Minute

// pool makes a pool of the subnet 10.70.<n>.0/24 and returns it.
func (m *machine) pool(t *testing.T, name string, n int, change ...func(*v1alpha1.IPPool)) *v1alpha1.IPPool {
	t.Helper()
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
		Subnet: fmt.Sprintf("10.70.%d.0/24", n), IPs: []string{fmt.Sprintf("10.70.%d.2-10.70.%[1]d.9", n)},
	}}
	for _, c := range change {
		c(p)
	}
	status := p.Status
	check.OK(t, m.Create(t.Context(), p))
	p.Status, p.Status.Agents = status, 1
	check.OK(t, m.Status().Update(t.Context(), p))
	m.asked(t, name, "192.0.2.1", func(answer string) bool { return !strings.Contains(answer, "it does not exist") })
	return p
}

// v6 makes a pool one of IPv6.
func v6(subnet string) func(*v1alpha1.IPPool) {
	return func(p *v1alpha1.IPPool) { p.Spec.Subnet, p.Spec.IPs = subnet, nil }
}

// asked waits until the agent answers as expected who asks for an address that
// is not to be had. A pod's events would tell the first answer only.
func (m *machine) asked(t *testing.T, pool, addr string, expected func(string) bool) {
	t.Helper()
	if m.asker.ContainerID == "" {
		m.asker = m.sandbox()
	}
	r := m.asker
	r.Network.DefaultIPv4IPPool, r.IPs = []string{pool}, []netip.Addr{netip.MustParseAddr(addr)}
	m.eventually("the agent sees pool "+pool, seen, func() bool { return expected(m.addError(r).Error()) })
}

func saying(annotation, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[annotation] = value
	}
}

// from names pools for all interfaces.
func from(v4 ...string) func(*corev1.Pod) {
	return saying("ipam.fenceline.io/ippool", fmt.Sprintf(`{"ipv4":["%s"]}`, strings.Join(v4, `","`)))
}

func in(namespace string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = namespace } }

func labelled(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }

// gets calls ADD until it succeeds, and expects addresses of some subnets.
func (m *machine) gets(t *testing.T, r agentapi.AddRequest, prefixes ...string) *agentapi.AddResponse {
	t.Helper()
	var answer *agentapi.AddResponse
	m.eventually("ADD of "+r.Pod.Name, seen, func() (ok bool) {
		var err error
		if answer, err = m.agent.Add(t.Context(), r); err != nil {
			t.Log(err)
		}
		return err == nil
	})
	for i, prefix := range prefixes {
		if i >= len(answer.IPs) || !strings.HasPrefix(answer.IPs[i].Address.Addr().String(), prefix) {
			t.Fatalf("got %v, want %v", answer.IPs, prefixes)
		}
	}
	check.OK(t, m.agent.Check(t.Context(), agentapi.CheckRequest{Attachment: r.Attachment}))
	return answer
}

// refuses calls ADD until it fails with a code and words, and expects an event
// of the pod with the same words, and nothing left.
func (m *machine) refuses(t *testing.T, r agentapi.AddRequest, code uint, words ...string) {
	t.Helper()
	var last error
	m.eventually(fmt.Sprintf("refusal of %s with %q", r.Pod.Name, words), seen, func() bool {
		if _, last = m.agent.Add(t.Context(), r); last == nil {
			check.OK(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: r.Attachment}))
			return false
		}
		t.Log(last)
		e, typed := errors.AsType[*agentapi.Error](last)
		return typed && e.Code == code && contains(e.Msg, words)
	})
	m.told(r, "AddressRefused", words...)
	m.noLease(t, r)
	wantCode(t, agentapi.CodeNotHeld, m.agent.Check(t.Context(), agentapi.CheckRequest{Attachment: r.Attachment}))
}

// told waits for an event of a pod.
func (m *machine) told(r agentapi.AddRequest, reason string, words ...string) {
	m.t.Helper()
	m.eventually(fmt.Sprintf("event %s of %s with %q", reason, r.Pod.Name, words), seen, func() bool {
		list := &eventsv1.EventList{}
		check.OK(m.t, m.List(m.t.Context(), list, client.InNamespace(r.Pod.Namespace)))
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == r.Pod.Name && e.Reason == reason && contains(e.Note, words)
		})
	})
}

// noLease expects that a refused ADD has left no lease.
func (m *machine) noLease(t *testing.T, r agentapi.AddRequest) {
	t.Helper()
	leases := &v1alpha1.IPLeaseList{}
	check.OK(t, m.List(t.Context(), leases))
	for _, l := range leases.Items {
		h := l.Spec.Holder
		check.That(t, h == nil || h.ContainerID != r.ContainerID, "lease %s is %s", l.Name, l.Spec.State)
	}
}

func contains(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}
