// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// rules plays the rules of choosing for which the agent reads objects, with real ones.
func (m *machine) rules(t *testing.T) {
	ctx := t.Context()
	m.node.Labels = map[string]string{"rack": "r1"}
	check.OK(t, m.Update(ctx, m.node))
	bank := namespace("bank")
	bank.Labels = map[string]string{"tier": "gold"}
	bank.Annotations = map[string]string{"ipam.fenceline.io/default-ipv4-ippool": `["of-bank"]`, "ipam.fenceline.io/default-ipv6-ippool": `["of-bank-6"]`}
	check.OK(t, m.Create(ctx, bank))
	m.part(t, "sources", m.sources)
	m.part(t, "filters", m.filters)
	m.part(t, "sorting", m.sorting)
	m.part(t, "bad input", m.badInput)
	m.part(t, "routes", m.routes)
	m.part(t, "VLANs", m.vlans)
	m.part(t, "modes", m.modes)
	m.part(t, "no route for the host link", m.noRoute)
	m.part(t, "gateways", m.gatewayChecks)
	m.part(t, "pools of applications", m.subnets)
}

// sources has one row for each source of pools.
func (m *machine) sources(t *testing.T) {
	for i, name := range []string{"of-ippools", "of-ippool", "of-bank", "of-config"} {
		m.pool(t, name, 1+i)
	}
	m.pool(t, "of-bank-6", 0, v6("fd70:3::/64"))
	m.pool(t, "of-config-6", 0, v6("fd70:4::/64"))
	each := saying("ipam.fenceline.io/ippools", `[{"interface":"net1","ipv4":["of-bank"]},{"interface":"eth0","ipv4":["of-ippools"]}]`)
	config := func(r agentapi.AddRequest) agentapi.AddRequest {
		r.Network.DefaultIPv4IPPool, r.Network.DefaultIPv6IPPool = []string{"of-config"}, []string{"of-config-6"}
		return r
	}
	for _, c := range []struct {
		rule    string
		request agentapi.AddRequest
		want    []string
	}{
		{"ippools", config(m.sandbox(each, from("of-ippool"), in("bank"))), []string{"10.70.1."}},
		{"ippool", config(m.sandbox(from("of-ippool"), in("bank"))), []string{"10.70.2."}},
		{"the namespace, for both families", config(m.sandbox(in("bank"))), []string{"10.70.3.", "fd70:3::"}},
		{"the CNI configuration, for both families", config(m.sandbox()), []string{"10.70.4.", "fd70:4::"}},
		{"spec.default", m.sandbox(), []string{"10.66.0."}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got := m.gets(t, c.request, c.want...)
			check.That(t, len(got.IPs) == len(c.want), "got %v", got.IPs)
		})
	}
}

// filters: the agent knows the present conditions, reservations and labels. agent/ipam has every reason.
func (m *machine) filters(t *testing.T) {
	check.OK(t, m.Create(t.Context(), &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "filters"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.70.10.0/24"}}}))
	m.pool(t, "reserved", 10)
	m.pool(t, "not-ready", 11, func(p *v1alpha1.IPPool) {
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: 1,
			Reason: "Overlapping", Message: "older pools have some", LastTransitionTime: metav1.Now()}}
	})
	m.refuses(t, m.sandbox(from("reserved", "not-ready")), agentapi.CodeNoPool,
		"pool reserved: all its addresses are reserved", "pool not-ready: it is not Ready (Overlapping: older pools have some)")
	for i, c := range []struct {
		rule   string
		change func(*v1alpha1.IPPool)
	}{
		{"the labels of the node", func(p *v1alpha1.IPPool) { p.Spec.NodeAffinity = selector("rack", "r1") }},
		{"the labels of the namespace", func(p *v1alpha1.IPPool) { p.Spec.NamespaceAffinity = selector("tier", "gold") }},
		{"the labels of the pod", func(p *v1alpha1.IPPool) { p.Spec.PodAffinity = selector("app", "web") }},
	} {
		t.Run(c.rule, func(t *testing.T) {
			name := fmt.Sprintf("selecting-%d", i)
			m.pool(t, name, 30+i, c.change)
			m.gets(t, m.sandbox(from(name), in("bank"), labelled), fmt.Sprintf("10.70.%d.", 30+i))
		})
	}
}

// sorting: the pool of the pod's attachment serves, although another pool is named first.
func (m *machine) sorting(t *testing.T) {
	m.pool(t, "sort-none", 40)
	m.pool(t, "sort-multus", 41, func(p *v1alpha1.IPPool) { p.Spec.MultusName = []string{"kube-system/macvlan"} })
	m.gets(t, m.sandbox(from("sort-none", "sort-multus"), ofMacvlan), "10.70.41.")
}

// badInput: the API server takes the annotation, and the event that names it.
func (m *machine) badInput(t *testing.T) {
	r := m.sandbox(saying("ipam.fenceline.io/ippool", strings.Repeat("x", 100_000)))
	m.refuses(t, r, agentapi.CodeInvalidNetworkConfig, "annotation ipam.fenceline.io/ippool of pod shop/"+r.Pod.Name, "expected ")
}

func ofMacvlan(p *corev1.Pod) { saying("v1.multus-cni.io/default-network", "macvlan")(p) }

func selector(k, v string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
}
