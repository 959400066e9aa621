// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// spiderOutFacts are a network of Fenceline with two pools, in a cluster with Spiderpool, and a pod with an address of each.
func spiderOutFacts(t *testing.T) Facts {
	f := outFacts()
	f.From, f.Spiderpool = v1alpha1.MoveSpiderpool, SpiderpoolOf(nil, nil, nil, nil)
	f.Definitions[0].Config = strings.NewReplacer(`"type":"fenceline",`, `"type":"fenceline","clean_gateway":true,`, `{"type":"fenceline"}`, `{"type":"fenceline","mode":"off","txQueueLen":7}`).Replace(ours)
	f.Pools[0].Spec.ExcludeIPs, f.Pools[0].Spec.Vlan, f.Pools[0].Spec.NamespaceName = []string{"10.100.0.4", "10.100.0.77"}, ptr.To(int64(100)), []string{"shop"}
	f.Pools[1].Spec.IPs = []string{"fd00:1::/120"}
	f.Pods = []Pod{podWith(1, "10.100.0.6", "fd00:1::6")}
	f.Pods[0].Interfaces[1].Network = "shop/vlan100"
	return f
}

func TestSpiderIPPoolsAndSpiderEndpointsOfAMoveOut(t *testing.T) {
	f := spiderOutFacts(t)
	reserved := check.Value(poolset.Parse([]string{"10.100.0.5", "10.9.0.1"}))(t)
	m, blocks := f.Draft(reserved)
	check.None(t, blocks, "blocks:")
	want := `{"cniVersion":"1.0.0","name":"vlan100","plugins":[{"type":"macvlan","master":"eth1","ipam":{"type":"spiderpool","clean_gateway":true,
		"default_ipv4_ippool":["v4"],"default_ipv6_ippool":["v6"],"routes":[{"dst":"172.16.0.0/12"},{"dst":"fd00:2::/32","gw":"fd00:1::9"},{"dst":"fd00:3::/32"},
		{"dst":"192.168.0.0/16","gw":"10.100.0.9"}]}},{"type":"tuning"},{"type":"coordinator","mode":"disable","txQueueLen":7}]}`
	if diff := cmp.Diff(decoded(t, want), decoded(t, m.Spec.Definitions[0].Config)); diff != "" {
		t.Errorf("definition (-want +got):\n%s", diff)
	}
	f = check.Value(f.Becoming(m, reserved))(t).Before(m)
	p := PlanOf(f)
	check.None(t, p.Blocks, "blocks:")
	of := func(address, uid string) v1alpha1.IPLease {
		return v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: address, State: v1alpha1.StateBound, NodeName: "n1", Holder: &v1alpha1.Holder{
			Namespace: "shop", Pod: "web-1", PodUID: uid, Interface: "net1", ContainerID: "c1"}}}
	}
	records := p.Leaving(f, []v1alpha1.IPLease{of("10.100.0.6", "u1"), of("fd00:1::6", "u1"), of("10.100.0.7", "u9")})
	pools := check.Value(f.SpiderIPPools(m, Left(nil, records)))(t)
	record := SpiderRecord{"shop/web-1", "u1"}
	if diff := cmp.Diff([]SpiderIPPool{
		{"v4", decoded(t, `{"ipVersion":4,"subnet":"10.100.0.0/24","ips":["10.100.0.2-10.100.0.9","10.100.0.20"],"excludeIPs":["10.100.0.4-10.100.0.5"],"gateway":"10.100.0.1",
			"vlan":100,"namespaceName":["shop"],"default":false,"disable":false,"routes":[{"dst":"192.168.0.0/16","gw":"10.100.0.1"},{"dst":"172.16.0.0/12","gw":"10.100.0.1"}]}`).(map[string]any),
			7, map[string]SpiderRecord{"10.100.0.6": record}},
		{"v6", decoded(t, `{"ipVersion":6,"subnet":"fd00:1::/64","ips":["fd00:1::2-fd00:1::ff"],"gateway":"fd00:1::1","default":false,"disable":false,
			"routes":[{"dst":"fd00:2::/32","gw":"fd00:1::9"},{"dst":"fd00:3::/32","gw":"fd00:1::1"}]}`).(map[string]any), 254, map[string]SpiderRecord{"fd00:1::6": record}},
	}, pools); diff != "" {
		t.Errorf("SpiderIPPools (-want +got):\n%s", diff)
	}
	endpoints := f.SpiderEndpoints(m, Left(nil, records))
	check.Must(t, len(endpoints) == 1, "%d SpiderEndpoints, want one", len(endpoints))
	route := func(dst, gw string) any { return map[string]any{"dst": dst, "gw": gw} }
	net1 := map[string]any{
		"interface": "net1", "vlan": int64(100), "cleanGateway": true, "ipv4": "10.100.0.6/24", "ipv4Pool": "v4", "ipv4Gateway": "10.100.0.1", "ipv6": "fd00:1::6/64", "ipv6Pool": "v6",
		"ipv6Gateway": "fd00:1::1", "routes": []any{
			route("192.168.0.0/16", "10.100.0.1"), route("172.16.0.0/12", "10.100.0.1"), route("fd00:2::/32", "fd00:1::9"), route("fd00:3::/32", "fd00:1::1"),
		},
	}
	first := map[string]any{"interface": "eth0", "ipv4": "10.244.0.1/24"}
	if diff := cmp.Diff([]any{first, net1}, endpoints[0].With([]any{first})); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	was := decoded(t, `{"interface":"net1","ipv4":"10.100.0.6/24","ipv6":"fd00:1::5/64","routes":[{"dst":"172.16.0.0/12","gw":"10.100.0.1"},{"dst":"fd00:9::/32","gw":"fd00:1::9"}]}`)
	six := SpiderEndpoint{Interfaces: map[string]map[string]any{"net1": {"ipv6": "fd00:1::6/64", "routes": []any{route("fd00:2::/32", "fd00:1::9")}}}}
	if diff := cmp.Diff([]any{map[string]any{"interface": "net1", "ipv4": "10.100.0.6/24", "ipv6": "fd00:1::6/64",
		"routes": []any{route("172.16.0.0/12", "10.100.0.1"), route("fd00:2::/32", "fd00:1::9")}}}, six.With([]any{was})); diff != "" {
		t.Errorf("interfaces after IPv6 alone (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{net1}, endpoints[0].With([]any{map[string]any{"interface": "net1", "ipv6": "fd00:1::6/64"}})); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
}

func TestWhatBlocksAMoveOutToSpiderpool(t *testing.T) {
	pool := func(name, subnet, ips string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"subnet":"` + subnet + `","ips":["` + ips + `"]}}`
	}
	for name, row := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"a wide pool":             {func(f *Facts) { f.Pools[1].Spec.IPs = nil }, "pool v6: it has more than 65536 addresses"},
		"a gateway of the link":   {func(f *Facts) { f.Pools[1].Spec.Gateway = ptr.To("fe80::1") }, "pool v6: its gateway fe80::1 lies outside its subnet"},
		"a policy of MACs":        {func(f *Facts) { f.Pools[0].Spec.MACPolicy = &v1alpha1.MACPolicy{} }, "pool v4: it has macPolicy"},
		"a limit of a namespace":  {func(f *Facts) { f.Pools[0].Spec.MaxPerNamespace = ptr.To(int64(3)) }, "pool v4: it has maxPerNamespace"},
		"a route without gateway": {func(f *Facts) { f.Pools[0].Spec.Gateway = nil }, "the route to 192.168.0.0/16 cannot be one of a SpiderIPPool"},
		"another default route": {func(f *Facts) {
			f.Definitions[0].Config = strings.Replace(f.Definitions[0].Config, "172.16.0.0/12\"", "0.0.0.0/0\",\"gw\":\"10.100.0.8\"", 1)
		}, "the route to 0.0.0.0/0 cannot be"},
		"other routes": {func(f *Facts) {
			f.Definitions = append(f.Definitions, Definition{Namespace: "shop", Name: "b", Config: strings.Replace(f.Definitions[0].Config, "172.16.0.0/12", "172.16.0.0/16", 1)})
		}, "definitions shop/vlan100 and shop/b have different routes"},
		"a SpiderIPPool with addresses of it": {func(f *Facts) {
			f.Spiderpool = SpiderpoolOf(spiderObjects(t, pool("x", "10.100.0.0/24", "10.100.0.9")), nil, nil, nil)
		}, "pool v4: SpiderIPPool x has addresses of it already"},
		"a SpiderIPPool of another subnet": {func(f *Facts) {
			f.Spiderpool = SpiderpoolOf(spiderObjects(t, pool("x", "10.100.0.0/16", "10.100.9.9")), nil, nil, nil)
		}, "pool v4: SpiderIPPool x has the subnet 10.100.0.0/16"},
		"a SpiderIPPool of its name": {func(f *Facts) {
			f.Spiderpool = SpiderpoolOf(spiderObjects(t, pool("v4", "10.9.0.0/24", "10.9.0.9")), nil, nil, nil)
		}, "a SpiderIPPool of this name with the subnet 10.9.0.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			f := spiderOutFacts(t)
			row.change(&f)
			_, blocks := f.Draft(poolset.Set{})
			check.That(t, strings.Contains(strings.Join(blocks, "; "), row.want), "blocks %v, want %q", blocks, row.want)
		})
	}

	// A SpiderIPPool of the subnet blocks nothing, nor does a definition with it, the default route of the gateway, or a
	// second pool of a family.
	f := spiderOutFacts(t)
	f.Spiderpool = SpiderpoolOf(spiderObjects(t, pool("x", "10.100.0.0/24", "10.100.0.99")), nil, nil, nil)
	f.Definitions[0].Config = `{"plugins":[{"type":"macvlan","ipam":{"type":"fenceline","default_ipv4_ippool":["v4","small"],"routes":[{"dst":"0.0.0.0/0","gw":"10.100.0.1"}]}}]}`
	f.Pools = append(f.Pools[:1], v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: v1alpha1.IPPoolSpec{
		Subnet: "10.100.0.0/24", IPs: []string{"10.100.0.30"}, Gateway: ptr.To("10.100.0.1")}})
	f.Definitions = append(f.Definitions, Definition{Namespace: "shop", Name: "x", Config: `{"type":"macvlan","ipam":{"type":"spiderpool","default_ipv4_ippool":["x"]}}`})
	m, blocks := f.Draft(poolset.Set{})
	check.None(t, blocks, "blocks:")
	check.None(t, PlanOf(check.Value(f.Becoming(m, poolset.Set{}))(t).Before(m)).Blocks, "blocks:")
}

// Spiderpool gets a record only if what it has already does not contradict it. A record that lacks a part gets it.
func TestWhatSpiderpoolHasOfAPodThatLeaves(t *testing.T) {
	for name, row := range map[string]struct {
		endpoint, records, want string
		change                  func(*Pod)
	}{
		"nothing":                 {},
		"a half record":           {records: `{"10.100.0.6":{"pod":"shop/web-1","podUid":"u1"}}`},
		"only a SpiderEndpoint":   {endpoint: `"uid":"u1","node":"n1","ips":[{"interface":"net1","ipv4":"10.100.0.6/24","ipv4Pool":"v4"}]`},
		"another's record":        {records: `{"10.100.0.6":{"pod":"shop/web-7","podUid":"u7"}}`, want: "spiderpool has another record"},
		"of another interface":    {endpoint: `"uid":"u1","node":"n1","ips":[{"interface":"net9","ipv4":"10.7.0.6/24","ipv4Pool":"v4"}]`},
		"of an earlier pod":       {endpoint: `"uid":"u0","node":"n1","ips":[]`, want: "SpiderEndpoint shop/web-1 is of an earlier pod"},
		"of its interface":        {endpoint: `"uid":"u1","node":"n1","ips":[{"interface":"net1","ipv4":"10.7.0.6/24","ipv4Pool":"x"}]`, want: "SpiderEndpoint shop/web-1 has 10.7.0.6 for its interface"},
		"of a machine's instance": {change: func(p *Pod) { p.OwnerKind = "VirtualMachineInstance" }, want: "Spiderpool keeps it for the virtual machine"},
	} {
		t.Run(name, func(t *testing.T) {
			f := spiderOutFacts(t)
			if row.change != nil {
				row.change(&f.Pods[0])
			}
			var pools, endpoints []SpiderObject
			if row.endpoint != "" {
				endpoints = spiderObjects(t, `{"metadata":{"namespace":"shop","name":"web-1"},"status":{"current":{`+row.endpoint+`}}}`)
			}
			if row.records != "" {
				pools = spiderObjects(t, `{"metadata":{"name":"v4"},"spec":{"subnet":"10.100.0.0/24","ips":["10.100.0.6"],"disable":true},`+allocated(row.records)+`}`)
			}
			f.Spiderpool = SpiderpoolOf(pools, endpoints, nil, nil)
			m, blocks := f.Draft(poolset.Set{})
			check.None(t, blocks, "blocks:")
			f = check.Value(f.Becoming(m, poolset.Set{}))(t).Before(m)
			records := PlanOf(f).Leaving(f, []v1alpha1.IPLease{{Spec: v1alpha1.IPLeaseSpec{Address: "10.100.0.6", State: v1alpha1.StateBound, Holder: &v1alpha1.Holder{
				Namespace: "shop", Pod: "web-1", PodUID: "u1", Interface: "net1"}}}})
			check.That(t, strings.Contains(records[0].Hold, row.want) && (row.want != "") == (records[0].Hold != ""), "hold %q, want %q", records[0].Hold, row.want)
		})
	}
}

// Spiderpool fills a new SpiderIPPool from the SpiderSubnet of its subnet, and not one that is updated.
func TestASpiderIPPoolThatASpiderSubnetWouldFill(t *testing.T) {
	const route = `{"dst":"172.16.0.0/12","gw":"10.100.0.1"}`
	for name, row := range map[string]struct{ ours, made, want string }{
		"as it is":       {`"gateway":"10.100.0.1","routes":[` + route + `]`, `"gateway":"10.100.0.1","routes":[` + route + `],"default":false`, ""},
		"with a gateway": {`"vlan":0`, `"vlan":0,"gateway":"10.100.0.1"`, `SpiderSubnet all of its subnet would give it the gateway "10.100.0.1": give these to the pool`},
		"with routes":    {`"gateway":"10.100.0.1"`, `"gateway":"10.100.0.1","routes":[` + route + `]`, `the routes [` + route + `]`},
	} {
		ours := SpiderIPPool{Spec: decoded(t, "{"+row.ours+"}").(map[string]any)}
		err := ours.Differs(decoded(t, `{"metadata":{"labels":{"`+subnetLabel+`":"all"}},"spec":{`+row.made+`}}`).(map[string]any))
		check.That(t, (err == nil) == (row.want == ""), "%s: %v", name, err)
		check.Says(t, fmt.Sprint(err), row.want)
	}
}

// Spiderpool gives a pod no second address of a SpiderIPPool.
func TestPodsWithTwoInterfacesOfAPool(t *testing.T) {
	of := func(address, pool, on, uid string) v1alpha1.IPLease {
		return v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: address, Pool: pool, State: v1alpha1.StateBound, Holder: &v1alpha1.Holder{PodUID: uid, Interface: on}}}
	}
	first := of("10.100.0.6", "v4", "net1", "u1")
	kept := of("10.100.0.7", "v4", "net2", "u1")
	kept.Spec.State = v1alpha1.StateRetained
	for name, row := range map[string]struct {
		second  v1alpha1.IPLease
		from    v1alpha1.MoveSource
		differs bool
	}{
		"two interfaces": {of("10.100.0.7", "v4", "net2", "u1"), v1alpha1.MoveSpiderpool, true},
		"two pools":      {of("fd00:1::7", "v6", "net2", "u1"), v1alpha1.MoveSpiderpool, false},
		"one interface":  {of("10.100.0.7", "v4", "net1", "u1"), v1alpha1.MoveSpiderpool, false},
		"two pods":       {of("10.100.0.7", "v4", "net2", "u2"), v1alpha1.MoveSpiderpool, false},
		"one is kept":    {kept, v1alpha1.MoveSpiderpool, false},
		"whereabouts":    {of("10.100.0.7", "v4", "net2", "u1"), v1alpha1.MoveWhereabouts, false},
	} {
		f := facts()
		f.From = row.from
		text := strings.Join(f.Twice([]v1alpha1.IPLease{first, row.second, {Spec: v1alpha1.IPLeaseSpec{State: v1alpha1.StateWarm}}}), "; ")
		check.Equal(t, strings.HasPrefix(text, "pod shop/web-1 has addresses of pool v4 on the interfaces net1 and net2"), row.differs, "%s: %s:", name, text)
	}
}
