//go:build kernel

package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
	bank.Annotations = map[string]string{"ipam.fenceline.io/default-ipv4-ippool": `["of-bank"]`}
	check(t, m.Create(ctx, bank))

	t.Run("sources", m.sources)
	t.Run("filters", m.filters)
	t.Run("sorting", m.sorting)
	t.Run("bad input", m.badInput)
	t.Run("reservations", m.reservations)
	t.Run("requested addresses", m.requested)
	t.Run("dual stack", m.dualStack)
	t.Run("several interfaces", m.severalInterfaces)
	t.Run("exhaustion and recovery", m.exhaustion)
	t.Run("a pool is edited", m.edits)
}

func (m *machine) sources(t *testing.T) {
	for i, name := range []string{"of-ippools", "of-ippool", "of-bank", "of-config", "pattern-1"} {
		m.pool(t, name, 1+i)
	}
	each := saying("ipam.fenceline.io/ippools", `[{"interface":"net1","ipv4":["of-bank"]},{"interface":"eth0","ipv4":["of-ippools"]}]`)
	config := func(r agentapi.AddRequest) agentapi.AddRequest {
		r.Network.DefaultIPv4IPPool = []string{"of-config"}
		return r
	}
	for _, c := range []struct {
		rule    string
		request agentapi.AddRequest
		want    string
	}{
		{"ippools", config(m.sandbox(each, from("of-ippool"), in("bank"))), "10.70.1."},
		{"ippool", config(m.sandbox(from("of-ippool"), in("bank"))), "10.70.2."},
		{"the namespace", config(m.sandbox(in("bank"))), "10.70.3."},
		{"the CNI configuration", config(m.sandbox()), "10.70.4."},
		{"spec.default", m.sandbox(), "10.66.0."},
		{"the other prefix", m.sandbox(saying("ipam.spidernet.io/ippool", `{"ipv4":["of-ippool"]}`)), "10.70.2."},
		{"a pattern", m.sandbox(from("pattern-?")), "10.70.5."},
		{"the backup", m.sandbox(from("of-ippools", "of-ippool"), saying("ipam.fenceline.io/routes", `[{"dst":"10.8.0.0/16","gw":"10.70.2.1"}]`)), "10.70.2."},
	} {
		t.Run(c.rule, func(t *testing.T) { m.gets(t, c.request, c.want) })
	}
	t.Run("a subnet is refused in this version", func(t *testing.T) {
		m.refuses(t, m.sandbox(saying("ipam.fenceline.io/subnet", `{"ipv4":["s"]}`)), agentapi.CodeInvalidNetworkConfig, "IPSubnet is not available in this version")
	})
}

func (m *machine) filters(t *testing.T) {
	yes := true
	selector := func(k, v string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	}
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
		{"exhausted", func(p *v1alpha1.IPPool) { p.Spec.Subnet, p.Spec.IPs = "10.70.32.0/24", []string{"10.70.32.2"} }, "it is exhausted, of its 1 addresses 1 have a lease"},
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
}

func (m *machine) sorting(t *testing.T) {
	m.pool(t, "sort-plain", 40)
	m.pool(t, "sort-namespace", 41, func(p *v1alpha1.IPPool) { p.Spec.NamespaceName, p.Spec.NodeName = []string{"shop"}, []string{"n1"} })
	m.pool(t, "sort-pod", 42, func(p *v1alpha1.IPPool) {
		p.Spec.PodAffinity = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	})
	m.gets(t, m.sandbox(from("sort-plain", "sort-namespace", "sort-pod"), labelled), "10.70.42.")
	m.gets(t, m.sandbox(from("sort-plain", "sort-namespace")), "10.70.41.")
}

func (m *machine) badInput(t *testing.T) {
	m.pool(t, "bad", 50)
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
		{"a gateway that nothing reaches", saying("ipam.fenceline.io/routes", `[{"dst":"10.8.0.0/16","gw":"192.168.1.1"}]`), "gw 192.168.1.1 is in the subnet of none of the pools"},
		{"an interface that is not there", func(p *corev1.Pod) {
			saying("k8s.v1.cni.cncf.io/networks", "lan")(p)
			saying("ipam.fenceline.io/default-route-nic", "etho")(p)
		}, "the pod has no interface etho"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			m.refuses(t, m.sandbox(from("bad"), c.pod), agentapi.CodeInvalidNetworkConfig, c.says)
		})
	}
}

func (m *machine) reservations(t *testing.T) {
	m.pool(t, "reserved", 60, func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.70.60.2-10.70.60.3"} })
	user := m.sandbox(from("reserved"))
	used := m.gets(t, user, "10.70.60.").IPs[0].Address.Addr()
	check(t, m.Create(t.Context(), &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "used"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{used.String()}}}))

	m.asked(t, "reserved", used.String(), func(answer string) bool { return strings.Contains(answer, "it is reserved") })
	asks := m.sandbox(from("reserved"))
	asks.IPs = []netip.Addr{used}
	m.refuses(t, asks, agentapi.CodeAddressRefused, used.String(), "it is reserved")
	check(t, m.agent.Check(t.Context(), agentapi.CheckRequest{Attachment: user.Attachment}))
	if l := m.lease(used); l == nil || l.Spec.State != v1alpha1.StateBound {
		t.Errorf("the address in use is %+v", l)
	}
	check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: user.Attachment}))
	for range 3 {
		r := m.sandbox(from("reserved"))
		if got := m.gets(t, r).IPs[0].Address.Addr(); got == used {
			t.Errorf("%s is reserved and was handed out", got)
		}
		check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: r.Attachment}))
	}
}

func (m *machine) requested(t *testing.T) {
	gateway := "10.70.61.1"
	m.pool(t, "asked", 61, func(p *v1alpha1.IPPool) { p.Spec.Gateway, p.Spec.ExcludeIPs = &gateway, []string{"10.70.61.9"} })
	asking := func(addr string) agentapi.AddRequest {
		r := m.sandbox(from("asked"))
		r.IPs = []netip.Addr{netip.MustParseAddr(addr)}
		return r
	}
	answer := m.gets(t, asking("10.70.61.5"), "10.70.61.5")
	if len(answer.Routes) != 1 || answer.Routes[0].Dst.String() != "0.0.0.0/0" || answer.IPs[0].Gateway.String() != gateway {
		t.Errorf("answer %+v", answer)
	}
	for addr, problem := range map[string]string{
		"10.70.61.1": "it is the gateway of pool asked", "10.70.61.9": "it is excluded from pool asked",
		"10.70.61.99": "it is outside of the ips of pool asked", "10.9.9.9": "it is in none of the pools [asked]", "10.70.61.5": "10.70.61.5",
	} {
		m.refuses(t, asking(addr), agentapi.CodeAddressRefused, addr, problem)
	}
}

func (m *machine) dualStack(t *testing.T) {
	m.pool(t, "dual-4", 62)
	m.pool(t, "dual-6", 0, func(p *v1alpha1.IPPool) { p.Spec.Subnet, p.Spec.IPs = "fd70::/64", []string{"fd70::2"} })
	both := saying("ipam.fenceline.io/ippool", `{"ipv4":["dual-4"],"ipv6":["dual-6"]}`)
	m.gets(t, m.sandbox(both), "10.70.62.", "fd70::2")
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

func (m *machine) exhaustion(t *testing.T) {
	m.pool(t, "one", 65, func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.70.65.2"} })
	first, second := m.sandbox(from("one")), m.sandbox(from("one"))
	m.gets(t, first, "10.70.65.2")
	m.refuses(t, second, agentapi.CodeExhausted, "pool one: it is exhausted")
	check(t, m.agent.Del(t.Context(), agentapi.DelRequest{Attachment: first.Attachment}))
	// It cools down, and nothing else is free.
	m.gets(t, second, "10.70.65.2")
}

func (m *machine) edits(t *testing.T) {
	p := m.pool(t, "edited", 66)
	change := func(c func(*v1alpha1.IPPoolSpec)) {
		t.Helper()
		check(t, m.Get(t.Context(), types.NamespacedName{Name: p.Name}, p))
		c(&p.Spec)
		check(t, m.Update(t.Context(), p))
	}
	user := m.sandbox(from("edited"))
	used := m.gets(t, user, "10.70.66.").IPs[0].Address.Addr()
	stays := func(when string) {
		t.Helper()
		l := m.lease(used)
		if err := m.agent.Check(t.Context(), agentapi.CheckRequest{Attachment: user.Attachment}); err != nil || l == nil || l.Spec.State != v1alpha1.StateBound {
			t.Errorf("%s: lease %+v, CHECK %v", when, l, err)
		}
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
