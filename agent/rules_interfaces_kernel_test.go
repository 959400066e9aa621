// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

func (m *machine) dualStack(t *testing.T) {
	m.pool(t, "dual-4", 62)
	m.pool(t, "dual-6", 0, v6("fd70::/64", "fd70::2"))
	both := saying("ipam.fenceline.io/ippool", `{"ipv4":["dual-4"],"ipv6":["dual-6"]}`)
	pod := m.sandbox(both)
	for _, ip := range m.gets(t, pod, "10.70.62.", "fd70::2").IPs {
		if l := m.lease(ip.Address.Addr()); l == nil || l.Spec.State != v1alpha1.StateBound || l.Spec.Holder.PodUID != pod.Pod.UID {
			t.Errorf("the lease of %s is %+v", ip.Address, l)
		}
	}
	m.refuses(t, m.sandbox(both), agentapi.CodeExhausted, "no IPv6 address", "pool dual-6: it is exhausted")
}

func (m *machine) severalInterfaces(t *testing.T) {
	gateway := "10.70.63.1"
	m.pool(t, "two", 63, func(p *v1alpha1.IPPool) { p.Spec.Gateway = &gateway })
	first := m.sandbox(from("two"), saying("k8s.v1.cni.cncf.io/networks", "lan"))
	a := m.gets(t, first, "10.70.63.")
	b := m.gets(t, m.also(t, first, "net1"), "10.70.63.")
	if a.IPs[0].Address == b.IPs[0].Address {
		t.Errorf("both interfaces have %s", a.IPs[0].Address)
	}
	if len(a.Routes) != 1 || len(b.Routes) != 0 {
		t.Errorf("default routes %v and %v", a.Routes, b.Routes)
	}

	m.pool(t, "lan-only", 64, func(p *v1alpha1.IPPool) { p.Spec.MultusName, p.Spec.IPs = []string{"shop/lan"}, []string{"10.70.64.2"} })
	pools := saying("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["two"]},{"interface":"net1","ipv4":["lan-only"]}]`)
	networks, nic := saying("k8s.v1.cni.cncf.io/networks", `[{"name":"lan"}]`), saying("ipam.fenceline.io/default-route-nic", "net1")
	second := m.sandbox(pools, networks, nic)
	if r := m.gets(t, second, "10.70.63.").Routes; len(r) != 0 {
		t.Errorf("eth0 has %v", r)
	}
	m.gets(t, m.also(t, second, "net1"), "10.70.64.2")
	// The second interface of the next pod finds nothing; its first one holds one address whatever it tries.
	third := m.sandbox(pools, networks, nic)
	held := m.gets(t, third, "10.70.63.").IPs
	net1 := m.also(t, third, "net1")
	for range 3 {
		m.refuses(t, net1, agentapi.CodeExhausted, "pool lan-only: it is exhausted")
	}
	if l := m.lease(held[0].Address.Addr()); l == nil || l.Spec.Holder.ContainerID != third.ContainerID {
		t.Errorf("the lease of the first interface is %+v", l)
	}
}
