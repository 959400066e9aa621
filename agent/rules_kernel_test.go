// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// rules plays every rule of choosing once with real objects.
func (m *machine) rules(t *testing.T) {
	ctx := t.Context()
	m.node.Labels = map[string]string{"rack": "r1"}
	check(t, m.Update(ctx, m.node))
	bank := namespace("bank")
	bank.Labels = map[string]string{"tier": "gold"}
	bank.Annotations = map[string]string{"ipam.fenceline.io/default-ipv4-ippool": `["of-bank"]`, "ipam.fenceline.io/default-ipv6-ippool": `["of-bank-6"]`}
	check(t, m.Create(ctx, bank))
	old := namespace("old")
	old.Annotations = map[string]string{
		"ipam.spidernet.io/defaultv4ippool": `["of-old"]`, "ipam.spidernet.io/defaultv6ippool": `["of-old-6"]`,
	}
	check(t, m.Create(ctx, old))

	m.part(t, "sources", m.sources)
	m.part(t, "filters", m.filters)
	m.part(t, "sorting", m.sorting)
	m.part(t, "bad input", m.badInput)
	m.part(t, "reservations", m.reservations)
	m.part(t, "requested addresses", m.requested)
	m.part(t, "dual stack", m.dualStack)
	m.part(t, "several interfaces", m.severalInterfaces)
	m.part(t, "exhaustion and recovery", m.exhaustion)
	m.part(t, "a pool is edited", m.edits)
	m.part(t, "pools that overlap", m.overlapping)
	m.part(t, "addresses that stay with their name", m.names)
	m.part(t, "cooldown", m.cooldown)
	m.part(t, "routes", m.routes)
	m.part(t, "VLANs", m.vlans)
	m.part(t, "modes", m.modes)
	m.part(t, "no route for the host link", m.noRoute)
	m.part(t, "gateways", m.gatewayChecks)
	m.part(t, "pools of applications", m.subnets)
}

func (m *machine) sources(t *testing.T) {
	for i, name := range []string{"of-ippools", "of-ippool", "of-bank", "of-config", "pattern-1"} {
		m.pool(t, name, 1+i)
	}
	m.pool(t, "of-old", 6)
	m.pool(t, "of-bank-6", 0, v6("fd70:3::/64"))
	m.pool(t, "of-old-6", 0, v6("fd70:6::/64"))
	m.pool(t, "of-config-6", 0, v6("fd70:4::/64"))
	each := saying("ipam.fenceline.io/ippools", `[{"interface":"net1","ipv4":["of-bank"]},{"interface":"eth0","ipv4":["of-ippools"]}]`)
	config := func(r agentapi.AddRequest) agentapi.AddRequest {
		r.Network.DefaultIPv4IPPool = []string{"of-config"}
		return r
	}
	config6 := func(r agentapi.AddRequest) agentapi.AddRequest {
		r.Network.DefaultIPv6IPPool = []string{"of-config-6"}
		return config(r)
	}
	ordered := saying("ipam.spidernet.io/ippools", `[{"ipv4":["of-ippools"]},{"ipv4":["of-ippool"]}]`)
	reached := saying("ipam.fenceline.io/routes", `[{"dst":"10.8.0.0/16","gw":"10.70.2.1"}]`)
	for _, c := range []struct {
		rule    string
		request agentapi.AddRequest
		want    []string
	}{
		{"ippools", config(m.sandbox(each, from("of-ippool"), in("bank"))), []string{"10.70.1."}},
		{"ippools, by order", m.sandbox(ordered), []string{"10.70.1."}},
		{"ippool", config(m.sandbox(from("of-ippool"), in("bank"))), []string{"10.70.2."}},
		{"the namespace, for both families", config6(m.sandbox(in("bank"))), []string{"10.70.3.", "fd70:3::"}},
		{"the namespace, by the older names", config6(m.sandbox(in("old"))), []string{"10.70.6.", "fd70:6::"}},
		{"the CNI configuration", config(m.sandbox()), []string{"10.70.4."}},
		{"the CNI configuration, for both families", config6(m.sandbox()), []string{"10.70.4.", "fd70:4::"}},
		{"spec.default", m.sandbox(), []string{"10.66.0."}},
		{"the other prefix", m.sandbox(saying("ipam.spidernet.io/ippool", `{"ipv4":["of-ippool"]}`)), []string{"10.70.2."}},
		{"ours before the other prefix", m.sandbox(saying("ipam.spidernet.io/ippool", `{"ipv4":["of-config"]}`), from("of-ippool")), []string{"10.70.2."}},
		{"a pattern with *", m.sandbox(from("*tern-1")), []string{"10.70.5."}},
		{"a pattern with ?", m.sandbox(from("pattern-?")), []string{"10.70.5."}},
		{"a pattern with []", m.sandbox(from("pattern-[12]")), []string{"10.70.5."}},
		{"the primary before the backup", m.sandbox(from("of-ippools", "of-ippool")), []string{"10.70.1."}},
		{"the backup", m.sandbox(from("of-ippools", "of-ippool"), reached), []string{"10.70.2."}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if got := m.gets(t, c.request, c.want...); len(got.IPs) != len(c.want) {
				t.Errorf("got %v", got.IPs)
			}
		})
	}
	t.Run("a pod without an owner gets no replicas from a subnet", func(t *testing.T) {
		m.refuses(t, m.sandbox(saying("ipam.fenceline.io/subnet", `{"ipv4":["s"]}`)), agentapi.CodeInvalidNetworkConfig, "a pod without an owner has no replicas")
	})
}

func (m *machine) filters(t *testing.T) {
	yes := true
	check(t, m.Create(t.Context(), &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "filters"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.70.31.0/24"}}}))
	for i, c := range []struct {
		rule   string
		change func(*v1alpha1.IPPool)
		reason string // empty: it serves
	}{
		{"disabled", func(p *v1alpha1.IPPool) { p.Spec.Disable = &yes }, "it is disabled"},
		{"being deleted", func(p *v1alpha1.IPPool) { p.Finalizers = []string{"fenceline.io/test"} }, "it is being deleted"},
		{"not Ready", func(p *v1alpha1.IPPool) {
			p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: 1,
				Reason: "Overlapping", Message: "older pools have some", LastTransitionTime: metav1.Now()}}
		}, "it is not Ready (Overlapping: older pools have some)"},
		{"nodeName", func(p *v1alpha1.IPPool) { p.Spec.NodeName = []string{"n2"} }, "its nodeName [n2] does not list node n1"},
		{"nodeName, met", func(p *v1alpha1.IPPool) {
			p.Spec.NodeName, p.Spec.NodeAffinity = []string{"n1"}, selector("rack", "r9")
		}, ""},
		{"nodeAffinity", func(p *v1alpha1.IPPool) { p.Spec.NodeAffinity = selector("rack", "r9") }, "its nodeAffinity (rack=r9) does not match the labels of node n1"},
		{"nodeAffinity, met", func(p *v1alpha1.IPPool) { p.Spec.NodeAffinity = selector("rack", "r1") }, ""},
		{"namespaceName", func(p *v1alpha1.IPPool) { p.Spec.NamespaceName = []string{"shop"} }, "its namespaceName [shop] does not list namespace bank"},
		{"namespaceName, met", func(p *v1alpha1.IPPool) { p.Spec.NamespaceName = []string{"bank"} }, ""},
		{"namespaceAffinity", func(p *v1alpha1.IPPool) { p.Spec.NamespaceAffinity = selector("tier", "tin") }, "its namespaceAffinity (tier=tin) does not match the labels of namespace bank"},
		{"namespaceAffinity, met", func(p *v1alpha1.IPPool) { p.Spec.NamespaceAffinity = selector("tier", "gold") }, ""},
		{"podAffinity", func(p *v1alpha1.IPPool) { p.Spec.PodAffinity = selector("app", "db") }, "its podAffinity (app=db) does not match the labels of pod"},
		{"podAffinity, met", func(p *v1alpha1.IPPool) { p.Spec.PodAffinity = selector("app", "web") }, ""},
		{"multusName", func(p *v1alpha1.IPPool) { p.Spec.MultusName = []string{"kube-system/sriov"} }, "its multusName [kube-system/sriov] does not list the attachment kube-system/macvlan"},
		{"multusName, met", func(p *v1alpha1.IPPool) { p.Spec.MultusName = []string{"kube-system/macvlan"} }, ""},
		{"all excluded", func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{p.Spec.Subnet} }, "all its addresses are excluded"},
		{"all reserved", func(p *v1alpha1.IPPool) { p.Spec.Subnet, p.Spec.IPs = "10.70.31.0/24", nil }, "all its addresses are reserved"},
		{"exhausted", func(p *v1alpha1.IPPool) { p.Spec.Subnet, p.Spec.IPs = "10.70.32.0/24", []string{"10.70.32.2"} }, "it is exhausted, 1 of its 1 addresses have a lease"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			name := fmt.Sprintf("filter-%d", i)
			p := m.pool(t, name, 10+i, c.change)
			r := m.sandbox(from(name), in("bank"), labelled, saying("v1.multus-cni.io/default-network", "macvlan"))
			if len(p.Finalizers) > 0 {
				check(t, m.Delete(t.Context(), p))
				defer func() {
					check(t, m.Get(t.Context(), types.NamespacedName{Name: name}, p))
					p.Finalizers = nil
					check(t, m.Update(t.Context(), p))
				}()
			}
			code := agentapi.CodeNoPool
			if c.rule == "exhausted" {
				m.gets(t, m.sandbox(from(name)), "10.70.32.2")
				code = agentapi.CodeExhausted
			}
			if c.reason == "" {
				m.gets(t, r, fmt.Sprintf("10.70.%d.", 10+i))
				return
			}
			m.refuses(t, r, code, "pool "+name+": "+c.reason)
		})
	}
	t.Run("all candidates are listed, those of the other family too", func(t *testing.T) {
		m.pool(t, "filter-family", 0, v6("fd70:16::/64"))
		r := m.sandbox()
		r.Network.DefaultIPv4IPPool = []string{"filter-0", "filter-family", "filter-3", "nowhere", "none-*"}
		m.refuses(t, r, agentapi.CodeNoPool, "pool filter-0: it is disabled; pool filter-family: its subnet fd70:16::/64 is of the other family; "+
			"pool filter-3: its nodeName [n2] does not list node n1; pool nowhere: it does not exist; pool none-*: no IPv4 pool matches this pattern")
	})
}
