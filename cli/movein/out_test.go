// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

const ours = `{"cniVersion":"1.0.0","name":"vlan100","plugins":[{"type":"macvlan","master":"eth1","ipam":{"type":"fenceline",
	"default_ipv4_ippool":["v4"],"default_ipv6_ippool":["v6"],"routes":[{"dst":"172.16.0.0/12"},{"dst":"fd00:2::/32","gw":"fd00:1::9"},{"dst":"fd00:3::/32"},{"dst":"192.168.0.0/16","gw":"10.100.0.9"}]}},{"type":"tuning"},{"type":"fenceline"}]}`

// outFacts are a network of Fenceline with two pools.
func outFacts() Facts {
	pool := func(name, subnet, gateway string, ips ...string) v1alpha1.IPPool {
		return v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet, Gateway: &gateway, IPs: ips}}
	}
	f := facts()
	f.Definitions, f.Records = []Definition{{Namespace: "shop", Name: "vlan100", Config: ours}, {Namespace: "shop", Name: "static", Config: `{"ipam":{"type":"static"}}`}}, nil
	f.Pools = []v1alpha1.IPPool{pool("v4", "10.100.0.0/24", "10.100.0.1", "10.100.0.1-10.100.0.9", "10.100.0.20"), pool("v6", "fd00:1::/64", "fd00:1::1")}
	f.Pools[0].Spec.Routes = []v1alpha1.Route{{Dst: "192.168.0.0/16"}, {Dst: "0.0.0.0/0"}}
	return f
}

func TestADefinitionForWhereabouts(t *testing.T) {
	reserved := check.Value(poolset.Parse([]string{"10.100.0.5", "fd00:1::100/120"}))(t)
	m, blocks := outFacts().Draft(reserved)
	check.None(t, blocks, "blocks:")
	check.List(t, m.Spec.Pools, []string{"v4", "v6"}, "pools")
	want := `{"cniVersion":"1.0.0","name":"vlan100","plugins":[{"type":"macvlan","master":"eth1","ipam":{"type":"whereabouts",
		"range":"10.100.0.0/24","range_start":"10.100.0.2","range_end":"10.100.0.20","exclude":["10.100.0.5/32","10.100.0.10/31","10.100.0.12/30","10.100.0.16/30"],
		"ipRanges":[{"range":"fd00:1::/64","range_start":"fd00:1::2","range_end":"fd00:1::ffff:ffff:ffff:ffff","exclude":["fd00:1::100/120"]}],
		"gateway":"10.100.0.1","routes":[{"dst":"192.168.0.0/16","gw":"10.100.0.1"},{"dst":"172.16.0.0/12","gw":"10.100.0.1"},
		{"dst":"fd00:2::/32","gw":"fd00:1::9"},{"dst":"fd00:3::/32","gw":"fd00:1::1"}]}},{"type":"tuning"}]}`
	if diff := cmp.Diff(decoded(t, want), decoded(t, m.Spec.Definitions[0].Config)); diff != "" {
		t.Errorf("definition (-want +got):\n%s", diff)
	}
}

func TestWhatBlocksAMoveOut(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"no definition":    {func(f *Facts) { f.Network = "shop/none" }, "there is no NetworkAttachmentDefinition shop/none"},
		"no pool is named": {func(f *Facts) { f.Definitions[0].Config = `{"type":"macvlan","ipam":{"type":"fenceline"}}` }, "none of Fenceline that names its pools"},
		"no such pool":     {func(f *Facts) { f.Pools = f.Pools[:1] }, "pool v6: it does not exist"},
		"a pool of /31": {func(f *Facts) {
			f.Pools[0].Spec.Subnet, f.Pools[0].Spec.IPs, f.Pools[0].Spec.Gateway, f.Pools[0].Spec.Routes = "10.100.0.2/31", nil, nil, nil
		}, "pool v4: its subnet 10.100.0.2/31 is too small"},
		"a default pool":      {func(f *Facts) { f.Pools[0].Spec.Default = ptr.To(true) }, "it is a default pool"},
		"a pool of a network": {func(f *Facts) { f.Pools[0].Spec.Network = "blue" }, "spec.network blue"},
		"two of a family":     {func(f *Facts) { f.Pools[1].Spec = f.Pools[0].Spec }, "the second of its family"},
		"others use a pool": {func(f *Facts) {
			f.Definitions = append(f.Definitions, Definition{Namespace: "shop", Name: "b", Config: `{"type":"macvlan","ipam":{"type":"fenceline","default_ipv4_ippool":["v4"]}}`})
		}, "definition shop/b has other pools than shop/vlan100"},
		"a long text": {func(f *Facts) {
			f.Definitions[0].Config = strings.Replace(ours, `"tuning"`, `"`+strings.Repeat("t", mostConfig)+`"`, 1)
		}, "characters, and a Move takes 16384"},
	} {
		t.Run(name, func(t *testing.T) {
			f := outFacts()
			row.change(&f)
			_, blocks := f.Draft(poolset.Set{})
			check.That(t, strings.Contains(strings.Join(blocks, "; "), row.want), "blocks %v, want %q", blocks, row.want)
		})
	}
}

func TestWhatBecomesOfTheLeasesOfANetworkThatMovesOut(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Facts, *v1alpha1.IPLeaseSpec)
		want   string
	}{
		"its pod runs": {func(*Facts, *v1alpha1.IPLeaseSpec) {}, ""},
		"whereabouts has its record": {func(f *Facts, _ *v1alpha1.IPLeaseSpec) {
			f.Records = []Records{{"10.100.0.0-24", "10.100.0.0/24", map[string]Allocation{"2": {"c1", "shop/web-1", "net1"}}, ""}}
		}, ""},
		"whereabouts has another's": {func(f *Facts, _ *v1alpha1.IPLeaseSpec) {
			f.Records = []Records{{"10.100.0.0-24", "10.100.0.0/24", map[string]Allocation{"2": {"c2", "shop/web-2", "net1"}}, ""}}
		}, "whereabouts has another record"},
		"no network-status":       {func(f *Facts, _ *v1alpha1.IPLeaseSpec) { f.Pods[0].Interfaces = nil }, "network-status of its pod does not have it"},
		"another interface":       {func(_ *Facts, s *v1alpha1.IPLeaseSpec) { s.Holder.Interface = "net2" }, "network-status of its pod does not have it"},
		"by another definition":   {func(f *Facts, _ *v1alpha1.IPLeaseSpec) { f.Pods[0].Interfaces[1].Network = "shop/b" }, "its definition does not move: shop/b"},
		"by this definition":      {func(f *Facts, _ *v1alpha1.IPLeaseSpec) { f.Pods[0].Interfaces[1].Network = f.Network }, ""},
		"the first interface":     {func(_ *Facts, s *v1alpha1.IPLeaseSpec) { s.Holder.Interface = "eth0" }, "host link"},
		"another pod of the name": {func(f *Facts, _ *v1alpha1.IPLeaseSpec) { f.Pods[0].UID = "later" }, "does not run any more"},
		"it has finished":         {func(f *Facts, _ *v1alpha1.IPLeaseSpec) { f.Pods[0].Finished = true }, "does not run any more"},
		"it is ending":            {func(f *Facts, _ *v1alpha1.IPLeaseSpec) { f.Pods[0].Ending = true }, "its pod is ending: repeat start once it has gone"},
		"reserved": {func(f *Facts, s *v1alpha1.IPLeaseSpec) {
			f.Pods[0], s.Address = podWith(1, "10.100.0.15"), "10.100.0.15"
		}, "a reservation or excludeIPs has it"},
		"kept":  {func(_ *Facts, s *v1alpha1.IPLeaseSpec) { s.State = v1alpha1.StateRetained }, "kept for a name"},
		"warm":  {func(_ *Facts, s *v1alpha1.IPLeaseSpec) { s.State, s.Holder = v1alpha1.StateWarm, nil }, "a node keeps it ready"},
		"taken": {func(_ *Facts, s *v1alpha1.IPLeaseSpec) { s.State, s.Reason = v1alpha1.StateQuarantined, "NodeLost" }, "it is Quarantined: NodeLost"},
	} {
		t.Run(name, func(t *testing.T) {
			f, l := outFacts(), v1alpha1.IPLease{}
			f.Pods = []Pod{podWith(1, "10.100.0.2")}
			l.Spec = v1alpha1.IPLeaseSpec{Address: "10.100.0.2", State: v1alpha1.StateBound, NodeName: "n1", Holder: &v1alpha1.Holder{
				Namespace: "shop", Pod: "web-1", PodUID: "u1", Interface: "net1", ContainerID: "c1", MAC: "0a:00:00:00:00:01"}}
			row.change(&f, &l.Spec)
			m, blocks := f.Draft(poolset.Set{})
			check.None(t, blocks, "blocks:")
			f = f.Before(m)
			p := PlanOf(f)
			records := p.Leaving(f, []v1alpha1.IPLease{l})
			check.Equal(t, len(records), 1, "records")
			check.That(t, strings.Contains(records[0].Hold, row.want) && (row.want != "") == (records[0].Hold != ""), "hold %q, want %q", records[0].Hold, row.want)
			if row.want == "" {
				want := []Records{{"10.100.0.0-24", "10.100.0.0/24", map[string]Allocation{"2": {"c1", "shop/web-1", "net1"}}, ""}, {"fd00-1---64", "fd00:1::/64", map[string]Allocation{}, ""}}
				if diff := cmp.Diff(want, f.Allocations(records)); diff != "" {
					t.Errorf("allocations (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A pod that the other IPAM has a record of gets the address of that record again, also an excluded one.
func TestARecordOfAnotherPodContestsALease(t *testing.T) {
	for name, row := range map[string]struct {
		record  Allocation
		change  func(*v1alpha1.IPLeaseSpec)
		differs bool
	}{
		"of its pod":             {Allocation{"c1", "shop/web-1", "net1"}, func(*v1alpha1.IPLeaseSpec) {}, false},
		"of its pod's later one": {Allocation{"c1", "shop/web-1", "net1"}, func(s *v1alpha1.IPLeaseSpec) { s.Holder.PodUID, s.Holder.ContainerID = "u9", "c9" }, false},
		"of another pod":         {Allocation{"c2", "shop/web-2", "net1"}, func(*v1alpha1.IPLeaseSpec) {}, true},
		"of a pod that is gone":  {Allocation{"c7", "shop/web-7", "net1"}, func(*v1alpha1.IPLeaseSpec) {}, true},
		"and it is warm":         {Allocation{"c1", "shop/web-1", "net1"}, func(s *v1alpha1.IPLeaseSpec) { s.State, s.Holder = v1alpha1.StateWarm, nil }, true},
		"and it is kept":         {Allocation{"c2", "shop/web-2", "net1"}, func(s *v1alpha1.IPLeaseSpec) { s.State = v1alpha1.StateRetained }, false},
		"and it is held": {Allocation{"c7", "shop/web-7", "net1"}, func(s *v1alpha1.IPLeaseSpec) {
			s.State, s.Holder, s.Reason = v1alpha1.StateQuarantined, nil, v1alpha1.ReasonMovingIn
		}, false},
		"and its node is lost": {Allocation{"c1", "shop/web-1", "net1"}, func(s *v1alpha1.IPLeaseSpec) {
			s.State, s.Holder, s.Previous = v1alpha1.StateQuarantined, nil, &v1alpha1.PreviousHolder{PodUID: "u1"}
		}, false},
		"of no pod": {Allocation{"c1", "", ""}, func(*v1alpha1.IPLeaseSpec) {}, false},
	} {
		f, l := facts(), v1alpha1.IPLease{}
		f.Records[0].Allocations = map[string]Allocation{"10": row.record}
		l.Spec = v1alpha1.IPLeaseSpec{Address: "10.100.0.10", State: v1alpha1.StateBound, Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web-1", PodUID: "u1"}}
		row.change(&l.Spec)
		all := PlanOf(f).Contested([]v1alpha1.IPLease{l})
		check.Equal(t, len(all) == 1, row.differs, "a record %s: %v", name, all)
	}
	check.None(t, PlanOf(facts()).Contested([]v1alpha1.IPLease{{Spec: v1alpha1.IPLeaseSpec{Address: "10.100.0.12"}}}), "without a record:")
	f := spiderFacts(t, pools("{}"), strings.ReplaceAll(endpoint1, `"u1"`, `"u7"`), "")
	f.Spiderpool.endpoints[netip.MustParseAddr("10.100.0.10")][0].name = "shop/web-7"
	l := v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: "10.100.0.10", Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web-1", PodUID: "u1"}}}
	check.Says(t, strings.Join(PlanOf(f).Contested([]v1alpha1.IPLease{l}), ""), "give it to pod shop/web-7 again")
}

// What has left keeps its record, and a record that is read again replaces the older one.
func TestRecordsOfAMoveOut(t *testing.T) {
	one := func(address, hold string) v1alpha1.MoveRecord {
		return v1alpha1.MoveRecord{Address: address, Hold: hold}
	}
	left := Left([]v1alpha1.MoveRecord{one("10.0.0.1", noRecord), one("10.0.0.2", "")}, []v1alpha1.MoveRecord{one("10.0.0.1", ""), one("10.0.0.3", "held")})
	check.List(t, left, []v1alpha1.MoveRecord{one("10.0.0.1", ""), one("10.0.0.2", "")}, "records")
	check.Equal(t, ReservationName("fd00:1::"), "fd00-1--0", "reservation")
}

// Whereabouts ignores what a definition with node_slice_size excludes.
func TestASlicedNetworkWithAddressesOfThePoolsBlocksAMoveOut(t *testing.T) {
	for of, blocks := range map[string]bool{"10.100.0.0/28": true, "10.7.0.0/24": false} {
		f := outFacts()
		f.Definitions = append(f.Definitions, Definition{Namespace: "shop", Name: "sliced", Config: `{"ipam":{"type":"whereabouts","node_slice_size":"/28","range":"` + of + `"}}`})
		m, none := f.Draft(poolset.Set{})
		check.None(t, none, "blocks:")
		text := strings.Join(PlanOf(f.Before(m)).Blocks, "\n")
		check.Equal(t, strings.Contains(text, "definition shop/sliced is of whereabouts too, and may have the same addresses: node_slice_size is set"), blocks, "%s: %s", of, text)
	}
}

// After the start, the other IPAM gives addresses to its own pods, also of other definitions.
func TestPodsOfTheOtherIPAMDoNotBlockAMoveOut(t *testing.T) {
	const most = v1alpha1.MaxMoveRecords + 1
	allocations, given := map[string]Allocation{"250": {"c", "shop/beside", "net1"}}, map[string]SpiderRecord{"10.100.0.250": {"shop/beside", "u"}}
	for i := range most {
		allocations[fmt.Sprint(1<<8+i)] = Allocation{"c", fmt.Sprint("shop/web-", i), "net1"}
		given[fmt.Sprintf("10.100.%d.%d", 1+i>>8, i&255)] = SpiderRecord{fmt.Sprint("shop/web-", i), fmt.Sprint("u", i)}
	}
	for from, f := range map[v1alpha1.MoveSource]Facts{v1alpha1.MoveWhereabouts: outFacts(), v1alpha1.MoveSpiderpool: spiderOutFacts(t)} {
		f.Pools[0].Spec.Subnet, f.Pools[0].Spec.IPs = "10.100.0.0/16", []string{"10.100.1.0-10.100.9.255"}
		f.Pods, f.Records = nil, []Records{{Name: "10.100.0.0-16", Range: "10.100.0.0/16", Allocations: allocations}}
		if text := check.Value(json.Marshal(given))(t); from == v1alpha1.MoveSpiderpool {
			f.Spiderpool = SpiderpoolOf(spiderObjects(t, `{"metadata":{"name":"v4"},"spec":{"subnet":"10.100.0.0/16","ips":["10.100.1.0-10.100.9.255"]},`+allocated(string(text))+`}`), nil, nil, nil)
		}
		m, blocks := f.Draft(poolset.Set{})
		check.None(t, blocks, "%s: blocks:", from)
		p := PlanOf(check.Value(f.Becoming(m, poolset.Set{}))(t).Before(m))
		check.None(t, p.Blocks, "%s: blocks:", from)
		check.Equal(t, len(p.Records), most, "%s: records", from)
	}
}
