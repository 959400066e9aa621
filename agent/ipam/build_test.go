// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// poolOf begins a test pool; the methods below make it read like a sentence.
type poolOf v1alpha1.IPPool

func pool(name, subnet string) *poolOf {
	return &poolOf{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet}}
}

func v4(name string) *poolOf { return pool(name, "10.0.0.0/24") }
func v6(name string) *poolOf { return pool(name, "fd00::/64") }

func (p *poolOf) ips(entries ...string) *poolOf     { p.Spec.IPs = entries; return p }
func (p *poolOf) without(entries ...string) *poolOf { p.Spec.ExcludeIPs = entries; return p }
func (p *poolOf) gateway(addr string) *poolOf       { p.Spec.Gateway = &addr; return p }
func (p *poolOf) asDefault() *poolOf                { p.Spec.Default = new(true); return p }
func (p *poolOf) disabled() *poolOf                 { p.Spec.Disable = new(true); return p }
func (p *poolOf) unasked() *poolOf                  { p.Spec.IPRequests = new(false); return p }
func (p *poolOf) notReady(reason, message string) *poolOf {
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	return p
}
func (p *poolOf) deleting() *poolOf                  { p.DeletionTimestamp = &metav1.Time{}; return p }
func (p *poolOf) nodes(names ...string) *poolOf      { p.Spec.NodeName = names; return p }
func (p *poolOf) nodesWith(k, v string) *poolOf      { p.Spec.NodeAffinity = labelled(k, v); return p }
func (p *poolOf) namespaces(names ...string) *poolOf { p.Spec.NamespaceName = names; return p }
func (p *poolOf) namespacesWith(k, v string) *poolOf {
	p.Spec.NamespaceAffinity = labelled(k, v)
	return p
}
func (p *poolOf) podsWith(k, v string) *poolOf { p.Spec.PodAffinity = labelled(k, v); return p }
func (p *poolOf) choosingMACs(prefix string) *poolOf {
	p.Spec.MACPolicy = &v1alpha1.MACPolicy{Type: v1alpha1.MACChosen, Prefix: prefix}
	return p
}
func (p *poolOf) attachments(names ...string) *poolOf { p.Spec.MultusName = names; return p }
func (p *poolOf) object() *v1alpha1.IPPool            { return (*v1alpha1.IPPool)(p) }
func labelled(k, v string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
}

func objects(pools ...*poolOf) []v1alpha1.IPPool {
	all := make([]v1alpha1.IPPool, len(pools))
	for i, p := range pools {
		all[i] = *p.object()
	}
	return all
}

// requestOf is a request whose pod, namespace and node have one label each.
func requestOf(change ...func(*Request)) Request {
	r := Request{
		Pod: Pod{Namespace: "shop", Name: "web-0", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"v1.multus-cni.io/default-network": "kube-system/macvlan"}},
		NamespaceLabels: map[string]string{"tier": "gold"},
		NodeName:        "n1",
		NodeLabels:      map[string]string{"rack": "r1"},
		Interface:       "eth0",
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func onPod(name, value string) func(*Request) {
	return func(r *Request) { annotate(&r.Pod.Annotations, name, value) }
}

func onNamespace(name, value string) func(*Request) {
	return func(r *Request) { annotate(&r.NamespaceAnnotations, name, value) }
}

func inConfig(v4, v6 []string) func(*Request) {
	return func(r *Request) { r.ConfigPools = ConfigPools{V4: v4, V6: v6} }
}

// onParent puts the interface on a parent with further names.
func onParent(name string, more ...string) func(*Request) {
	return func(r *Request) { r.Parent = Parent{Name: name, Names: append(more, name)} }
}

// onInterface asks for an interface of a pod that has others already.
func onInterface(name string, earlier ...Interface) func(*Request) {
	return func(r *Request) { r.Interface, r.Earlier = name, earlier }
}

// has is an interface that has addresses of some subnets.
func has(name string, subnets ...string) Interface {
	i := Interface{Name: name}
	for _, s := range subnets {
		i.Subnets = append(i.Subnets, netip.MustParsePrefix(s))
	}
	return i
}

// keeping makes an address of a pool the interface's own.
func keeping(addr, pool string) func(*Request) {
	return func(r *Request) { r.Kept = append(r.Kept, Kept{Addr: netip.MustParseAddr(addr), Pool: pool}) }
}

func asking(addrs ...string) func(*Request) {
	return func(r *Request) {
		for _, a := range addrs {
			r.IPs = append(r.IPs, netip.MustParseAddr(a))
		}
	}
}

func annotate(all *map[string]string, name, value string) {
	if *all == nil {
		*all = map[string]string{}
	}
	(*all)[name] = value
}

func setOf(t *testing.T, entries ...string) poolset.Set {
	t.Helper()
	return check.Value(poolset.Parse(entries))(t)
}
