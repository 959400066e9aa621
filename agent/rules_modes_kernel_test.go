// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// linked makes an interface with macvlan and Fenceline chained. fields are those of the chained plugin.
func (m *machine) linked(t *testing.T, pod agentapi.AddRequest, iface, fields string) error {
	t.Helper()
	return check.Err(m.chain(t, pod, iface, m.macvlan(m.parent, "")+`,{"type":"fenceline",`+fields+`"ipam":{`+m.paths()+`}}`))
}

// modes shows what the configuration and the pod decide about host links and tables.
func (m *machine) modes(t *testing.T) {
	m.pool(t, "linked", 90)
	m.pool(t, "linked-too", 91)
	pools := saying("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["linked"]},{"interface":"net1","ipv4":["linked-too"]}]`)
	two := saying("k8s.v1.cni.cncf.io/networks", "lan")
	nothing := func(*corev1.Pod) {}
	for _, c := range []struct {
		rule   string
		fields string
		asks   func(*corev1.Pod)
		want   string
	}{
		{"by default", ``, nothing, "host-eth0, table of net1"},
		{"of the network", `"mode":"overlay","hostLink":true,`, nothing, "host-eth0, host-net1, table of eth0, table of net1"},
		{"of the pod before the network", `"mode":"overlay","hostLink":true,`, func(p *corev1.Pod) {
			saying("ipam.fenceline.io/mode", `[{"interface":"eth0","mode":"off"}]`)(p)
			saying("ipam.fenceline.io/host-link", `[{"interface":"net1","hostLink":false}]`)(p)
		}, "table of net1"},
	} {
		m.part(t, c.rule, func(t *testing.T) {
			pod, ns := m.unplugged(pools, two, c.asks)
			for _, iface := range []string{"eth0", "net1"} {
				check.OK(t, m.linked(t, pod, iface, c.fields))
			}
			check.Equal(t, routingOf(t, ns), c.want, "the pod has")
		})
	}
	m.pool(t, "served", 92, func(p *v1alpha1.IPPool) {
		p.Spec.Subnet, p.Spec.IPs = "10.96.7.0/24", []string{"10.96.7.2-10.96.7.9"}
	})
	m.part(t, "a service CIDR over the subnet of the pod is refused, and leaves nothing", func(t *testing.T) {
		pod, ns := m.unplugged(from("served"))
		before := hostLinks(t)
		t.Run("ADD", func(t *testing.T) {
			err := m.linked(t, pod, "eth0", "")
			e, ok := errors.AsType[*types.Error](err)
			words := []string{"service CIDR 10.96.0.0/16", "subnet 10.96.7.0/24"}
			check.That(t, ok && e.Code == agentapi.CodeInvalidNetworkConfig && contains(e.Msg, words), "got %v, want code 7 with %q", err, words)
			check.Equal(t, routingOf(t, ns), "", "the pod has")
		})
		m.nothingLeft(t, pod, before) // the runtime has answered the refusal with a DEL
	})
}

// nothingLeft expects neither a lease of a pod nor other host links of the node than before.
func (m *machine) nothingLeft(t *testing.T, pod agentapi.AddRequest, before []string) {
	t.Helper()
	check.List(t, hostLinks(t), before, "the node has")
	m.noLease(t, pod)
}

// routingOf lists the host links of a pod, and its interfaces with a table of their own.
func routingOf(t *testing.T, ns *network.Namespace) string {
	t.Helper()
	links := check.Value(ns.Links().LinkList())(t)
	rules := check.Value(ns.Links().RuleList(netlink.FAMILY_V4))(t)
	var found []string
	for _, link := range links {
		name := link.Attrs().Name
		if strings.HasPrefix(name, "host-") {
			found = append(found, name)
		}
		addrs := check.Value(ns.Links().AddrList(link, netlink.FAMILY_V4))(t)
		for _, r := range rules {
			if slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return r.Src != nil && a.IP.Equal(r.Src.IP) }) {
				found = append(found, "table of "+name)
			}
		}
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}

// hostLinks lists the host links of the node.
func hostLinks(t *testing.T) []string {
	t.Helper()
	all := check.Value(net.Interfaces())(t)
	var found []string
	for _, i := range all {
		if strings.HasPrefix(i.Name, hostlink.NodePrefix) {
			found = append(found, i.Name)
		}
	}
	slices.Sort(found)
	return found
}
