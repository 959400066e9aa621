// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

func (m *machine) badInput(t *testing.T) {
	m.pool(t, "bad", 50)
	bad := namespace("bad")
	bad.Annotations = map[string]string{"ipam.fenceline.io/default-ipv4-ippool": "bad"}
	check(t, m.Create(t.Context(), bad))
	for _, c := range []struct {
		rule string
		pod  func(*corev1.Pod)
		says string
	}{
		{"no JSON", saying("ipam.fenceline.io/ippool", "bad"), `annotation ipam.fenceline.io/ippool of pod`},
		{"a misspelt field", saying("ipam.fenceline.io/ippool", `{"ipv4pool":["bad"]}`), `unknown field "ipv4pool"`},
		{"an unknown pool", from("bad", "worse"), "there is no pool worse"},
		{"the wrong family", saying("ipam.fenceline.io/ippool", `{"ipv6":["bad"]}`), "is of the other family"},
		{"a pool named twice", from("bad", "bad"), "pool bad is named twice"},
		{"an interface named twice", saying("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["bad"]},{"interface":"eth0","ipv4":["bad"]}]`), "interface eth0 is named twice"},
		{"an empty list", saying("ipam.fenceline.io/ippools", "[]"), "the list has 0 entries"},
		{"a huge value", saying("ipam.fenceline.io/ippool", strings.Repeat("x", 100_000)), "annotation ipam.fenceline.io/ippool of pod"},
		{"routes that are none", saying("ipam.fenceline.io/routes", `[{"dst":"10.8.0.0/16","gw":"router"}]`), `"router" is not an IP address`},
		{"a gateway that nothing reaches", saying("ipam.fenceline.io/routes", `[{"dst":"10.8.0.0/16","gw":"192.168.1.1"}]`), "gw 192.168.1.1 is outside the subnets of the pools"},
		{"broken networks", saying("k8s.v1.cni.cncf.io/networks", "[{"), "annotation k8s.v1.cni.cncf.io/networks of pod"},
		{"a retention that is no duration", saying("ipam.fenceline.io/ip-retention", "2d"), `annotation ipam.fenceline.io/ip-retention is "2d"`},
		{"an interface that is not there", func(p *corev1.Pod) {
			saying("k8s.v1.cni.cncf.io/networks", "lan")(p)
			saying("ipam.fenceline.io/default-route-nic", "etho")(p)
		}, "the pod has no interface etho"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			m.refuses(t, m.sandbox(from("bad"), c.pod), agentapi.CodeInvalidNetworkConfig, c.says, "annotation ", "expected ")
		})
	}
	t.Run("of a namespace", func(t *testing.T) {
		m.refuses(t, m.sandbox(in("bad")), agentapi.CodeInvalidNetworkConfig,
			`annotation ipam.fenceline.io/default-ipv4-ippool of namespace bad is "bad"`, "expected ")
	})
}

func (m *machine) requested(t *testing.T) {
	gateway := "10.70.61.1"
	m.pool(t, "asked", 61, func(p *v1alpha1.IPPool) { p.Spec.Gateway, p.Spec.ExcludeIPs = &gateway, []string{"10.70.61.9"} })
	asking := func(addr string) agentapi.AddRequest {
		r := m.sandbox(from("asked"))
		r.IPs = []netip.Addr{netip.MustParseAddr(addr)}
		return r
	}
	first := asking("10.70.61.5")
	answer := m.gets(t, first, "10.70.61.5")
	if len(answer.Routes) != 1 || answer.Routes[0].Dst.String() != "0.0.0.0/0" || answer.IPs[0].Gateway.String() != gateway {
		t.Errorf("answer %+v", answer)
	}
	for addr, problem := range map[string]string{
		"10.70.61.1": "it is the gateway of pool asked", "10.70.61.9": "it is excluded from pool asked",
		"10.70.61.99": "it is outside of the ips of pool asked", "10.9.9.9": "it is outside of the pools [asked]",
		"10.70.61.5": "is taken: Bound for pod shop/" + first.Pod.Name + " on node n1",
	} {
		m.refuses(t, asking(addr), agentapi.CodeAddressRefused, addr, problem)
	}
}
