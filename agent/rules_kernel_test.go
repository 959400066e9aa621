// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
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

// subnets: the agent reads the owner of a pod to find the pool of its application.
func (m *machine) subnets(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	labels := map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "c", Image: "none"}},
	}}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
	check.OK(t, m.Create(t.Context(), deployment))
	set := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: deployment.Spec.Selector, Template: template}}
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	job := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: *template.DeepCopy()}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	stateful := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: deployment.Spec.Selector, Template: template}}
	daemons := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: deployment.Spec.Selector, Template: template}}
	for i, c := range []struct {
		kind        string
		owner       client.Object
		api         schema.GroupVersion
		application v1alpha1.Application
	}{
		{"ReplicaSet", set, appsv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "apps", Kind: "Deployment"}},
		{"Job", job, batchv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "batch", Kind: "Job"}},
		{"StatefulSet", stateful, appsv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "apps", Kind: "StatefulSet"}},
		{"DaemonSet", daemons, appsv1.SchemeGroupVersion, v1alpha1.Application{APIGroup: "apps", Kind: "DaemonSet"}},
	} {
		t.Run("a pod of a "+c.kind, func(t *testing.T) {
			check.OK(t, m.Create(t.Context(), c.owner))
			c.application.Namespace, c.application.Name, c.application.Interface = "shop", "web", "0"
			pool := m.pool(t, "of-"+strings.ToLower(c.application.Kind), 93+i, func(p *v1alpha1.IPPool) {
				p.Spec.IPSubnet, p.Spec.Application = "s", &c.application
			})
			m.gets(t, m.sandbox(saying("ipam.fenceline.io/subnet", `{"ipv4":["s"]}`), func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c.owner, c.api.WithKind(c.kind))}
			}), pool.Spec.Subnet[:len("10.70.93.")])
		})
	}
}

// gatewayChecks starts pods beside a router that answers for one of their gateways, and then for both.
func (m *machine) gatewayChecks(t *testing.T) {
	const router = "eth0" // its interface
	yes, gateways := true, []string{"10.70.87.1", "fd70:87::1"}
	checked := func(gateway string) func(*v1alpha1.IPPool) {
		return func(p *v1alpha1.IPPool) { p.Spec.Gateway, p.Spec.GatewayCheck = &gateway, &yes }
	}
	m.pool(t, "gated", 87, checked(gateways[0]))
	m.pool(t, "gated-6", 0, v6("fd70:87::/64"), checked(gateways[1]))
	pools := saying("ipam.fenceline.io/ippool", `{"ipv4":["gated"],"ipv6":["gated-6"]}`)
	elsewhere := *m
	elsewhere.parent = m.parent + "g"
	ns := m.routerAt(t, elsewhere.parent, router)
	for _, c := range []struct {
		answers, silent string
	}{
		{gateways[0] + "/24", gateways[1] + " of pool gated-6 does"},
		{gateways[1] + "/64", ""},
	} {
		check.OK(t, ns.AddAddr(router, netip.MustParsePrefix(c.answers)))
		pod, inside := m.unplugged(pools)
		before := hostLinks(t)
		err := elsewhere.linked(t, pod, "eth0", "")
		if c.silent == "" {
			check.OK(t, err)
			got := routingOf(t, inside)
			check.That(t, got == "host-eth0", "the pod has %q, want a host link", got)
			continue
		}
		words := []string{"gateway " + c.silent + " not answer on parent " + elsewhere.parent + " of node n1"}
		e, ok := errors.AsType[*types.Error](err)
		check.That(t, ok && e.Code == agentapi.CodeTryAgainLater && contains(e.Msg, words), "got %v, want code 11 with %q", err, words)
		m.nothingLeft(t, pod, before)
	}
}

// routerAt makes a parent whose other end is the interface of a router without addresses.
func (m *machine) routerAt(t *testing.T, parent, iface string) *network.Namespace {
	t.Helper()
	ns := network.New(t, "router")
	check.OK(t, m.here.AddPair(parent, ns, iface))
	t.Cleanup(func() { check.OK(t, m.here.DeleteLink(parent)) })
	check.OK(t, errors.Join(m.here.SetUp(parent, true), ns.SetUp(iface, true)))
	return ns
}
