// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
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
		err := m.agent.Check(t.Context(), agentapi.CheckRequest{Attachment: user.Attachment})
		check.That(t, err == nil && l != nil && l.Spec.State == v1alpha1.StateBound, "%s: lease %+v, CHECK %v", when, l, err)
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
		l := m.lease(addr)
		check.That(t, l != nil && l.UID == uid && l.Spec.State == state, "the lease is %+v, want %s", l, state)
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

// gatewayChecks starts pods beside a router that answers for more and more of their gateways.
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
	ns := routerAt(t, elsewhere.parent, router)
	macvlan := elsewhere.plugins(t)
	for _, c := range []struct {
		answers, silent string
	}{
		{"", gateways[0] + " of pool gated does"},
		{gateways[0] + "/24", gateways[1] + " of pool gated-6 does"},
		{gateways[1] + "/64", ""},
	} {
		if c.answers != "" {
			check.OK(t, ns.AddAddr(router, netip.MustParsePrefix(c.answers)))
		}
		pod, inside := m.unplugged(pools)
		before := hostLinks(t)
		err := macvlan.linked(t, pod, "eth0", "")
		if c.silent == "" {
			check.OK(t, err)
			got := routingOf(t, inside)
			check.That(t, got == "host-eth0", "the pod has %q, want a host link", got)
			continue
		}
		words := []string{"gateway " + c.silent + " not answer on parent " + elsewhere.parent + " of node n1"}
		e, ok := errors.AsType[*cnitypes.Error](err)
		check.That(t, ok && e.Code == agentapi.CodeTryAgainLater && contains(e.Msg, words), "got %v, want code 11 with %q", err, words)
		after := hostLinks(t)
		check.That(t, slices.Equal(before, after), "the node has %q, and had %q", after, before)
		leases := &v1alpha1.IPLeaseList{}
		check.OK(t, m.List(t.Context(), leases))
		for _, l := range leases.Items {
			h := l.Spec.Holder
			check.That(t, h == nil || h.ContainerID != pod.ContainerID, "lease %s is %s", l.Name, l.Spec.State)
		}
	}
}

// routerAt makes a parent whose other end is the interface of a router without addresses.
func routerAt(t *testing.T, parent, iface string) *network.Namespace {
	t.Helper()
	ns := check.Value(network.Create(fmt.Sprintf("%s-router", parent)))(t)
	t.Cleanup(func() { check.OK(t, ns.Delete()) })
	f := check.Value(os.Open(ns.Path()))(t)
	defer f.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = parent
	check.OK(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: iface, PeerNamespace: netlink.NsFd(f.Fd())}))
	link := check.Value(netlink.LinkByName(parent))(t)
	t.Cleanup(func() { check.OK(t, netlink.LinkDel(link)) })
	check.OK(t, errors.Join(netlink.LinkSetUp(link), ns.SetUp(iface, true)))
	return ns
}

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
	check.That(t, a.IPs[0].Address != b.IPs[0].Address, "both interfaces have %s", a.IPs[0].Address)
	if len(a.Routes) != 1 || len(b.Routes) != 0 {
		t.Errorf("default routes %v and %v", a.Routes, b.Routes)
	}

	m.pool(t, "lan-only", 64, func(p *v1alpha1.IPPool) { p.Spec.MultusName, p.Spec.IPs = []string{"shop/lan"}, []string{"10.70.64.2"} })
	pools := saying("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["two"]},{"interface":"net1","ipv4":["lan-only"]}]`)
	networks, nic := saying("k8s.v1.cni.cncf.io/networks", `[{"name":"lan"}]`), saying("ipam.fenceline.io/default-route-nic", "net1")
	second := m.sandbox(pools, networks, nic)
	r := m.gets(t, second, "10.70.63.").Routes
	check.That(t, len(r) == 0, "eth0 has %v", r)
	m.gets(t, m.also(t, second, "net1"), "10.70.64.2")
	// The second interface of the next pod finds nothing. Each of its tries leaves the first one its address.
	third := m.sandbox(pools, networks, nic)
	held := m.gets(t, third, "10.70.63.").IPs
	net1 := m.also(t, third, "net1")
	for range 3 {
		m.refuses(t, net1, agentapi.CodeExhausted, "pool lan-only: it is exhausted")
	}
	l := m.lease(held[0].Address.Addr())
	check.That(t, l != nil && l.Spec.Holder.ContainerID == third.ContainerID, "the lease of the first interface is %+v", l)
}
