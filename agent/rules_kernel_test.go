// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
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
	reservation := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "filters"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.70.10.0/24"}}}
	check.OK(t, m.Create(t.Context(), reservation))
	m.pool(t, "reserved", 10)
	m.pool(t, "not-ready", 11, func(p *v1alpha1.IPPool) {
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: 1,
			Reason: "Overlapping", Message: "older pools have some", LastTransitionTime: metav1.Now()}}
	})
	m.refuses(t, m.sandbox(from("reserved", "not-ready")), agentapi.CodeNoPool,
		"pool reserved: all its addresses are reserved", "pool not-ready: it is not Ready (Overlapping: older pools have some)")
	own, other := m.sandbox(from("reserved")), m.sandbox(from("reserved"))
	reservation.Spec = v1alpha1.ReservedIPSpec{IPs: []string{"10.70.10.0/24"}, For: &v1alpha1.ReservedFor{Namespace: own.Pod.Namespace, Pod: own.Pod.Name}}
	check.OK(t, m.Update(t.Context(), reservation))
	m.gets(t, own, "10.70.10.")
	m.refuses(t, other, agentapi.CodeNoPool, "pool reserved: all its addresses are reserved")
	check.OK(t, m.Delete(t.Context(), reservation))
	m.gets(t, other, "10.70.10.")
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
