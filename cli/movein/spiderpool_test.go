// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// spiderConfig is a definition as a SpiderMultusConfig with a VLAN makes it.
const spiderConfig = `{"cniVersion":"0.3.1","name":"vlan100","plugins":[{"type":"ifacer","interfaces":["eth1"],"vlanID":100},
	{"type":"macvlan","ipam":{"type":"spiderpool","default_ipv4_ippool":["web-*"],"default_ipv6_ippool":["web6"]},"master":"eth1.100","mode":"bridge"},
	{"type":"coordinator","mode":"overlay","hijackCIDR":["169.254.0.0/16"],"tunePodRoutes":true}]}`

func allocated(records string) string {
	return fmt.Sprintf(`"status":{"totalIPCount":10,"allocatedIPCount":1,"allocatedIPs":%q}`, records)
}

const (
	web1 = `{"metadata":{"name":"web-1"},"spec":{"ipVersion":4,"subnet":"10.100.0.0/24","ips":["10.100.0.10-10.100.0.19"],"excludeIPs":["10.100.0.13"],
		"gateway":"10.100.0.1","namespaceName":["shop"],"multusName":["shop/vlan100"],"default":false,"disable":false,"routes":[{"dst":"172.16.0.0/12","gw":"10.100.0.2"}]},`
	web6      = `{"metadata":{"name":"web6"},"spec":{"ipVersion":6,"subnet":"2001:db8::/64","ips":["2001:db8::10-2001:db8::1f"]},"status":{}}`
	records1  = `{"10.100.0.10":{"pod":"shop/web-1","podUid":"u1"}}`
	endpoint1 = `{"metadata":{"namespace":"shop","name":"web-1"},"status":{"current":{"uid":"u1","node":"n1","ips":[
		{"interface":"net1","ipv4":"10.100.0.10/24","ipv4Pool":"web-1","ipv6":"2001:db8::10/64","ipv6Pool":"web6","vlan":0}]},"ownerControllerType":"Deployment","ownerControllerName":"web"}}`
)

// spiderFacts are a pod of Spiderpool with an address of each family.
func spiderFacts(t *testing.T, pools, endpoints, reserved string) Facts {
	f := Facts{From: v1alpha1.MoveSpiderpool, Network: "shop/vlan100", Definitions: []Definition{{Namespace: "shop", Name: "vlan100", Config: spiderConfig}}}
	f.Pods = []Pod{podWith(1, "10.100.0.10", "2001:db8::10")}
	f.Pods[0].Interfaces[1].Network = "shop/vlan100"
	f.Spiderpool = SpiderpoolOf(spiderObjects(t, pools), spiderObjects(t, endpoints), spiderObjects(t, reserved), nil)
	return f
}

func spiderObjects(t *testing.T, text string) (all []SpiderObject) {
	t.Helper()
	check.OK(t, json.Unmarshal([]byte("["+text+"]"), &all))
	return all
}

// pools are the SpiderIPPools with other records of web-1.
func pools(records string) string {
	six := strings.Replace(web6, `"status":{}`, allocated(`{"2001:db8::10":{"pod":"shop/web-1","podUid":"u1"}}`), 1)
	return web1 + allocated(records) + "}," + six
}

func TestAPlanFromSpiderpoolKeepsNamesOfPools(t *testing.T) {
	reserved := `{"metadata":{"name":"printers"},"spec":{"ipVersion":4,"ips":["10.100.0.13-10.100.0.15","10.9.0.1"]}},
		{"metadata":{"name":"fenceline-shop.vlan100-v4"},"spec":{"ipVersion":4,"ips":["10.100.0.10-10.100.0.18"]}}`
	p := PlanOf(spiderFacts(t, pools(records1), endpoint1, reserved))
	check.None(t, p.Blocks, "blocks:")
	check.Must(t, len(p.Pools) == 2 && len(p.Changes) == 1, "%d pools and %d changes, want 2 and 1", len(p.Pools), len(p.Changes))
	want := v1alpha1.IPPoolSpec{
		IPVersion: ptr.To[int64](4), Subnet: "10.100.0.0/24", IPs: []string{"10.100.0.10-10.100.0.19"}, ExcludeIPs: []string{"10.100.0.13", "10.100.0.14-10.100.0.15"},
		Gateway: ptr.To("10.100.0.1"), NamespaceName: []string{"shop"}, MultusName: []string{"shop/vlan100"}, Parents: []string{"eth1.100"},
		Default: ptr.To(false), Disable: ptr.To(true), Routes: []v1alpha1.Route{{Dst: "172.16.0.0/12", Gw: "10.100.0.2"}},
	}
	if diff := cmp.Diff(want, p.Pools[0].Spec); diff != "" || p.Pools[0].Name != "web-1" || p.Pools[1].Name != "web6" {
		t.Errorf("pools %s and %s (-want +got):\n%s", p.Pools[0].Name, p.Pools[1].Name, diff)
	}
	records := []v1alpha1.MoveRecord{
		{Address: "10.100.0.10", Node: "n1", Namespace: "shop", Pod: "web-1", PodUID: "u1", Interface: "net1", MAC: "0a:00:00:00:00:01", Record: "SpiderIPPool web-1, of shop/web-1"},
		{Address: "2001:db8::10", Node: "n1", Namespace: "shop", Pod: "web-1", PodUID: "u1", Interface: "net1", MAC: "0a:00:00:00:00:01", Record: "SpiderIPPool web6, of shop/web-1"},
	}
	if diff := cmp.Diff(records, p.Records); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	c := p.Changes[0]
	switched := `{"cniVersion":"0.3.1","name":"vlan100","plugins":[{"type":"ifacer","interfaces":["eth1"],"vlanID":100},
		{"type":"macvlan","ipam":{"type":"fenceline","default_ipv4_ippool":["web-*"],"default_ipv6_ippool":["web6"]},"master":"eth1.100","mode":"bridge"},
		{"type":"fenceline","mode":"overlay","hostLinkCIDRs":["169.254.0.0/16"]}]}`
	if diff := cmp.Diff(decoded(t, switched), decoded(t, c.Switched)); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	check.Equal(t, check.Value(c.Returned(p.Freeze()))(t), spiderConfig, "the definition on the way back")
	for config, want := range map[string]State{spiderConfig: Before, c.Switched: Switched, `{}`: Edited} {
		check.Equal(t, c.StateOf(config), want, "%s:", config)
	}
	check.List(t, p.Holes(), []string{"no SpiderReservedIP of the move has 10.100.0.19, 2001:db8::10-2001:db8::1f"}, "holes")
	if diff := cmp.Diff([]Reservation{
		{"fenceline-shop.vlan100-v4", 4, []any{"10.100.0.10-10.100.0.19"}}, {"fenceline-shop.vlan100-v6", 6, []any{"2001:db8::10-2001:db8::1f"}},
	}, Reservations("shop/vlan100", p.Freeze())); diff != "" {
		t.Errorf("SpiderReservedIPs (-want +got):\n%s", diff)
	}
	check.Says(t, strings.Join(p.Notes, "\n"), "takes the place of the coordinator")
	check.Equal(t, len(p.Giving), 2, "SpiderIPPools that still give")
}

// A record is adopted only if SpiderIPPool, SpiderEndpoint and pod agree.
func TestRecordsOfSpiderpoolThatDisagreeAreHeld(t *testing.T) {
	change := func(old, replacement string) string { return strings.Replace(endpoint1, old, replacement, 1) }
	for _, row := range []struct{ want, records, endpoints string }{
		{"no SpiderEndpoint of its pod has it", records1, ""},
		{"SpiderEndpoint shop/web-1 has it for another pod", records1, change("u1", "u7")},
		{"SpiderEndpoint shop/web-1 has it of SpiderIPPool web-2", records1, change(`"ipv4Pool":"web-1"`, `"ipv4Pool":"web-2"`)},
		{"SpiderEndpoint shop/web-1 names node n7, and its pod node n1", records1, change("n1", "n7")},
		{"names interface net7", records1, change("net1", "net7")},
		{"SpiderEndpoint shop/web-1 names MAC 0a:00:00:00:00:09", records1, change(`"vlan":0`, `"mac":"0A:00:00:00:00:09"`)},
		{"SpiderEndpoints shop/web-1 and shop/two have it", records1, endpoint1 + "," + change(`"name":"web-1"`, `"name":"two"`)},
		{"the old IPAM has no record of it, only SpiderEndpoint shop/web-1", "{}", endpoint1},
		{"the old IPAM has no record of it", "{}", ""},
		{"pod shop/web-1 of its record does not exist", strings.Replace(records1, "u1", "u0", 1), endpoint1},
	} {
		f := spiderFacts(t, pools(row.records), row.endpoints, "")
		p := PlanOf(f)
		check.None(t, p.Blocks, "%s: blocks:", row.want)
		at := slices.IndexFunc(p.Records, func(r v1alpha1.MoveRecord) bool { return r.Address == "10.100.0.10" })
		check.Must(t, at >= 0, "%s: %+v", row.want, p.Records)
		check.Says(t, p.Records[at].Hold, row.want)
		check.Equal(t, p.HasUnknown(), row.endpoints == "", "%s: is read again:", row.want)
		isLost := strings.HasPrefix(row.want, noRecord)
		back := p.Unrecorded([]v1alpha1.MoveRecord{{Address: "10.100.0.10"}})
		check.Equal(t, back[0].Hold != "", isLost, "%s: its pod stays with Fenceline:", row.want)
	}
}

// The pod of a virtual machine has a name of its own, and a SpiderEndpoint of the machine's name.
func TestThePodOfAMachineIsFoundByItsUID(t *testing.T) {
	f := spiderFacts(t, pools(strings.Replace(records1, "shop/web-1", "shop/vm", 1)), strings.Replace(endpoint1, `"name":"web-1"`, `"name":"vm"`, 1), "")
	f.Pods[0].Interfaces = nil // Multus has not written it yet
	p := PlanOf(f)
	check.Must(t, len(p.Records) == 2 && p.Held() == 0, "records %+v", p.Records)
	check.Equal(t, p.Records[0].Pod, "web-1", "the pod")
}

func TestWhatBlocksAMoveFromSpiderpoolIsNamed(t *testing.T) {
	for _, row := range []struct{ want, old, replacement string }{
		{`SpiderIPPool web-1 cannot be read: spec: json: unknown field "zone"`, `"gateway"`, `"zone":"a","gateway"`},
		{"SpiderIPPool web-1 cannot be read: spec.subnet", `"subnet":"10.100.0.0/24"`, `"subnet":"vlan100"`},
		{"SpiderIPPool web-1 cannot be read: spec.ips", `["10.100.0.10-10.100.0.19"]`, `["10.100.0.10/x"]`},
		{"SpiderIPPool web-1 cannot be read: spec.excludeIPs", `["10.100.0.13"]`, `["x"]`},
		{"SpiderIPPool web-1 cannot be read: status.allocatedIPs", `"allocatedIPs":"{`, `"allocatedIPs":"`},
		{"SpiderIPPool web-1 cannot be read: status.allocatedIPs", `10.100.0.10\"`, `10.100.0.300\"`},
		{"SpiderEndpoint shop/web-1 cannot be read: status.current.ips", "10.100.0.10/24", "x/24"},
		{"SpiderEndpoint shop/web-1 cannot be read: status.current:", `"uid":"u1"`, `"uid":1`},
		{"SpiderReservedIP mine cannot be read: spec.ips", "10.100.0.19\"]}}", "10.100.0.x\"]}}"},
		{"SpiderSubnet all has made SpiderIPPool web-1 for an application", `{"name":"web-1"}`, `{"name":"web-1","labels":{"ipam.spidernet.io/owner-spider-subnet":"all","ipam.spidernet.io/owner-application-name":"web"}}`},
		{"SpiderIPPool web-1 is disabled", `"disable":false`, `"disable":true`},
		{"SpiderIPPool web-1 has no ips", `"ips":["10.100.0.10-10.100.0.19"],`, ""},
		{"the SpiderIPPools have more than 65536", `2001:db8::10-2001:db8::1f`, `2001:db8::10-2001:db8::1:1f`},
		{"multusName vlan100 has no namespace", `"multusName":["shop/vlan100"]`, `"multusName":["vlan100"]`},
		{"lies outside the addresses", `10.100.0.10\"`, `10.100.0.77\"`},
		{"lies outside the addresses", "10.100.0.18-", "10.100.0.10-"},
	} {
		all := [3]string{pools(records1), endpoint1, `{"metadata":{"name":"mine"},"spec":{"ips":["10.100.0.18-10.100.0.19"]}}`}
		found := false
		for i := range all {
			changed := strings.Replace(all[i], row.old, row.replacement, 1)
			found = found || changed != all[i]
			all[i] = changed
		}
		check.Must(t, found, "nothing has %s", row.old)
		p := PlanOf(spiderFacts(t, all[0], all[1], all[2]))
		check.Says(t, strings.Join(p.Blocks, "\n"), row.want)
		check.Equal(t, strings.Contains(strings.Join(p.Strangers, "\n"), row.want), strings.Contains(row.want, "cannot be read"), "%s: it stops a move that has begun:", row.want)
	}

	// A move that has begun goes on when its pools are disabled or deleted, for the end of it.
	f := spiderFacts(t, "", "", "")
	check.Says(t, strings.Join(PlanOf(f).Blocks, "\n"), "names no SpiderIPPool")
	f.Moving = []v1alpha1.MoveDefinition{{Namespace: "shop", Name: "vlan100"}}
	p := PlanOf(f)
	check.That(t, len(p.Blocks) == 0 && len(p.Changes) == 1 && len(p.Giving) == 0, "blocks %v, giving %v", p.Blocks, p.Giving)
	check.Says(t, strings.Join(p.Notes, "\n"), "names the SpiderIPPool web-*, which does not exist")
}

// A SpiderSubnet owns each SpiderIPPool of its subnet. Those that people have made move. For the others, the plan has the
// IPSubnet that is to be made by hand.
func TestSpiderIPPoolsOfASpiderSubnet(t *testing.T) {
	owned := strings.Replace(pools(records1), `{"name":"web-1"}`, `{"name":"web-1","labels":{"ipam.spidernet.io/owner-spider-subnet":"all"}}`, 1)
	f := spiderFacts(t, owned, endpoint1, `{"metadata":{"name":"mine"},"spec":{"ips":["10.100.0.18-10.100.0.22"]}},
		{"metadata":{"name":"fenceline-shop.vlan100-v4"},"spec":{"ips":["10.100.0.10-10.100.0.19"]}}`)
	subnets := spiderObjects(t, `{"metadata":{"name":"all"},"spec":{"ipVersion":4,"subnet":"10.100.0.0/24","ips":["10.100.0.2-10.100.0.20"],"excludeIPs":["10.100.0.3"],"gateway":"10.100.0.1",
		"routes":[{"dst":"172.16.0.0/12","gw":"10.100.0.2"}]}},{"metadata":{"name":"other"},"spec":{"subnet":"10.9.0.0/24","ips":["10.9.0.2-10.9.0.20"]}}`)
	withSubnets := func(f Facts) Facts {
		of := SpiderpoolOf(nil, nil, nil, subnets)
		f.Spiderpool.subnets, f.Spiderpool.problems = of.subnets, append(f.Spiderpool.problems, of.problems...)
		return f
	}
	p := PlanOf(withSubnets(f))
	check.None(t, p.Blocks, "blocks:")
	check.That(t, len(p.Pools) == 2 && len(p.Subnets) == 0 && len(p.Giving) == 2, "pools %v, subnets %v, giving %v", p.Pools, p.Subnets, p.Giving)

	// After a start, the person deletes the SpiderIPPool, and the SpiderSubnet has its addresses again.
	gone := f
	gone.Moving, gone.MovingPools = []v1alpha1.MoveDefinition{{Namespace: "shop", Name: "vlan100"}}, []string{"web-1", "web6"}
	gone.Spiderpool.pools = gone.Spiderpool.pools[1:]
	check.Says(t, strings.Join(PlanOf(withSubnets(gone)).Giving, "\n"), "SpiderSubnet all would give 10.100.0.10-10.100.0.19 to other SpiderIPPools: take these out of its ips")

	f = spiderFacts(t, strings.Replace(owned, `"all"`, `"all","ipam.spidernet.io/owner-application-name":"web"`, 1), endpoint1, `{"metadata":{"name":"mine"},"spec":{"ips":["10.100.0.18-10.100.0.22"]}}`)
	p = PlanOf(withSubnets(f))
	want := v1alpha1.IPSubnetSpec{
		IPVersion: ptr.To[int64](4), Subnet: "10.100.0.0/24", IPs: []string{"10.100.0.2-10.100.0.20"}, ExcludeIPs: []string{"10.100.0.3", "10.100.0.18-10.100.0.20"},
		Gateway: ptr.To("10.100.0.1"), Routes: []v1alpha1.Route{{Dst: "172.16.0.0/12", Gw: "10.100.0.2"}},
	}
	check.Must(t, len(p.Subnets) == 1 && p.Subnets[0].Name == "all", "subnets %v", p.Subnets)
	if diff := cmp.Diff(want, p.Subnets[0].Spec); diff != "" {
		t.Errorf("IPSubnet (-want +got):\n%s", diff)
	}
	subnets = spiderObjects(t, `{"metadata":{"name":"all"},"spec":{"subnet":"10.100.0.0/24","ips":["x"]}}`)
	check.Says(t, strings.Join(PlanOf(withSubnets(f)).Strangers, "\n"), "SpiderSubnet all cannot be read: spec.ips")
}

// The pools of a network are those that its definition or its pods name, and all of their subnets.
func TestPoolsOfANetworkOfSpiderpool(t *testing.T) {
	pool := func(name, subnet, more string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"subnet":"%s.0/24","ips":["%s.10"]%s},%s}`, name, subnet, subnet, more, allocated(fmt.Sprintf(`{"%s.10":{"pod":"shop/web-1","podUid":"u1"}}`, subnet)))
	}
	for _, row := range []struct{ want, config, pools, uses string }{
		{"a b", `"default_ipv4_ippool":["a"]`, pool("a", "10.1.0", "") + "," + pool("b", "10.1.0", "") + "," + pool("c", "10.2.0", `,"default":true`), ""},
		{"c", `"log_level":"DEBUG"`, pool("a", "10.1.0", "") + "," + pool("c", "10.2.0", `,"default":true`) + "," + pool("d", "10.3.0", `,"default":true,"multusName":["shop/other"]`), ""},
		{"a", `"clean_gateway":true`, pool("a", "10.1.0", `,"multusName":["shop/vlan100"]`) + "," + pool("b", "10.3.0", ""), ""},
		{"b", `"clean_gateway":true`, pool("a", "10.1.0", "") + "," + pool("b", "10.3.0", ""), "10.3.0.10"},
		{"", `"clean_gateway":true`, pool("b", "10.3.0", ""), "10.3.0.11"},
	} {
		f := spiderFacts(t, row.pools, "", "")
		f.Definitions[0].Config = `{"type":"macvlan","ipam":{"type":"spiderpool",` + row.config + `}}`
		f.Pods = nil
		if row.uses != "" {
			f.Pods = []Pod{podWith(1, row.uses)}
			f.Pods[0].Interfaces[1].Network = "shop/vlan100"
		}
		var names []string
		for _, p := range PlanOf(f).Pools {
			names = append(names, p.Name)
		}
		check.Equal(t, strings.Join(names, " "), row.want, "%s with a pod of %q:", row.config, row.uses)
		f.Moving, f.MovingPools, names = []v1alpha1.MoveDefinition{{Namespace: "shop", Name: "vlan100"}}, []string{"a"}, nil
		for _, p := range PlanOf(f).Pools {
			names = append(names, p.Name)
		}
		check.Equal(t, strings.Join(names, " "), map[bool]string{true: "a"}[strings.HasPrefix(row.want, "a")], "%s in a move of pool a:", row.config)
	}
}

// Spiderpool gives addresses for all interfaces of a pod in its first ADD, if the annotation ippools names their pools.
func TestPodsWhoseAnnotationNamesPoolsThatStayAreNoted(t *testing.T) {
	const both = `[{"interface":"eth0","ipv4":["far"]},{"interface":"net1","ipv4":["web-?"],"ipv6":["web6"]}]`
	ours := []v1alpha1.IPPool{{ObjectMeta: metav1.ObjectMeta{Name: "far"}}}
	for name, row := range map[string]struct {
		text   string
		pools  []v1alpha1.IPPool
		change func(*Pod)
		noted  bool
	}{
		"one stays":              {text: both, noted: true},
		"one has moved":          {text: both, pools: ours},
		"all move":               {text: strings.Replace(both, "far", "web-1", 1)},
		"none moves":             {text: `[{"interface":"eth0","ipv4":["far"]},{"interface":"net1","ipv4":["near"]}]`},
		"no JSON":                {text: "{"},
		"its pod has finished":   {text: both, change: func(p *Pod) { p.Finished = true }},
		"another pod has it too": {text: both, change: func(p *Pod) { p.OwnerKind, p.OwnerName = "Deployment", "web" }, noted: true},
	} {
		f := spiderFacts(t, pools(records1), endpoint1, "")
		f.Pools, f.Pods[0].Named = row.pools, Named(map[string]string{"ipam.spidernet.io/ippools": row.text})
		if row.change != nil {
			row.change(&f.Pods[0])
		}
		f.Pods = append(f.Pods, f.Pods[0])
		f.Pods[1].Name, f.Pods[1].Interfaces = "web-2", nil
		p := PlanOf(f)
		check.None(t, p.Blocks, "%s: blocks:", name)
		text := strings.Join(p.Notes, "\n")
		want := "ippools of pod shop/web-1 names web-?, web6, which move, and far, which do not"
		check.Equal(t, strings.Count(text, "ipam.spidernet.io/ippools") == 1 && strings.Contains(text, want), row.noted, "%s: noted once: %s:", name, text)
	}

	out := spiderOutFacts(t)
	out.Pools = append(out.Pools, ours...)
	out.Pods[0].Named = [][]string{{"far"}, {"v4"}}
	m, _ := out.Draft(poolset.Set{})
	p := PlanOf(check.Value(out.Becoming(m, poolset.Set{}))(t).Before(m))
	check.Says(t, strings.Join(p.Notes, "\n"), "of pod shop/web-1 names v4, which move, and far, which do not")
	check.Equal(t, len(p.Notes), 1, "notes of a move out, %v:", p.Notes)
}
