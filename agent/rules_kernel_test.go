// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"strings"
	"testing"

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
	m.part(t, "bad input", m.badInput)
	m.part(t, "routes", m.routes)
	m.part(t, "VLANs", m.vlans)
	m.part(t, "modes", m.modes)
	m.part(t, "gateways", m.gatewayChecks)
	m.part(t, "pools of applications", m.subnets)
}

// sources has one row for each object that names pools, beside the pod.
func (m *machine) sources(t *testing.T) {
	m.pool(t, "of-bank", 3)
	m.pool(t, "of-config", 4)
	m.pool(t, "of-bank-6", 0, v6("fd70:3::/64"))
	m.pool(t, "of-config-6", 0, v6("fd70:4::/64"))
	config := func(r agentapi.AddRequest) agentapi.AddRequest {
		r.Network.DefaultIPv4IPPool, r.Network.DefaultIPv6IPPool = []string{"of-config"}, []string{"of-config-6"}
		return r
	}
	for _, c := range []struct {
		rule    string
		request agentapi.AddRequest
		want    []string
	}{
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
	m.pool(t, "selecting", 30, func(p *v1alpha1.IPPool) {
		p.Spec.NodeAffinity, p.Spec.NamespaceAffinity, p.Spec.PodAffinity = selector("rack", "r1"), selector("tier", "gold"), selector("app", "web")
	})
	m.gets(t, m.sandbox(from("selecting"), in("bank"), labelled), "10.70.30.")
}

// badInput: the API server takes the annotation, and the event that names it.
func (m *machine) badInput(t *testing.T) {
	r := m.sandbox(saying("ipam.fenceline.io/ippool", strings.Repeat("x", 100_000)))
	m.refuses(t, r, agentapi.CodeInvalidNetworkConfig, "annotation ipam.fenceline.io/ippool of pod shop/"+r.Pod.Name, "expected ")
}

func selector(k, v string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
}
