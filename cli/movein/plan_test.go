// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

const config = `{"cniVersion":"0.3.1","name":"vlan100","type":"macvlan","master":"eth1.100","ipam":{"type":"whereabouts",
	"range":"10.100.0.0/24","range_start":"10.100.0.10","range_end":"10.100.0.19","exclude":["10.100.0.13/31"],"gateway":"10.100.0.1",
	"routes":[{"dst":"172.16.0.0/12","gw":"10.100.0.2"}]}}`

// facts are two pods of a network with their records.
func facts() Facts {
	return Facts{
		From:        v1alpha1.MoveWhereabouts,
		Network:     "shop/vlan100",
		Definitions: []Definition{{Namespace: "shop", Name: "vlan100", Config: config}, {Namespace: "shop", Name: "other", Config: `{"ipam":{"type":"static"}}`}},
		Records: []Records{
			{"10.100.0.0-24", "10.100.0.0/24", map[string]Allocation{"10": {"c1", "shop/web-1", "net1"}, "11": {"c2", "shop/web-2", "net1"}}, ""},
			{"10.200.0.0-24", "10.200.0.0/24", map[string]Allocation{"10": {"c9", "shop/elsewhere", "net1"}}, ""},
		},
		Pods: []Pod{podWith(1, "10.100.0.10"), podWith(2, "10.100.0.11")},
	}
}

func podWith(number int, addrs ...string) Pod {
	p := Pod{Namespace: "shop", Name: fmt.Sprint("web-", number), UID: fmt.Sprint("u", number), Node: fmt.Sprint("n", number)}
	i := Interface{Interface: "net1", MAC: fmt.Sprintf("0A:00:00:00:00:%02X", number)}
	for _, a := range addrs {
		i.IPs = append(i.IPs, netip.MustParseAddr(a))
	}
	p.Interfaces = []Interface{{Interface: "eth0", IPs: []netip.Addr{netip.MustParseAddr(fmt.Sprint("10.244.0.", number))}}, i}
	return p
}

func TestAPlanMakesPoolsAdoptsPodsAndSwitchesTheDefinition(t *testing.T) {
	p := PlanOf(facts())
	check.None(t, p.Blocks, "blocks:")
	check.Must(t, len(p.Pools) == 1 && len(p.Changes) == 1, "%d pools and %d changes, want one each", len(p.Pools), len(p.Changes))
	gateway := "10.100.0.1"
	want := v1alpha1.IPPoolSpec{
		Subnet: "10.100.0.0/24", IPs: []string{"10.100.0.10-10.100.0.19"}, ExcludeIPs: []string{"10.100.0.12/31"}, Gateway: &gateway,
		Parents: []string{"eth1.100"}, MultusName: []string{"shop/vlan100"}, Disable: ptr.To(true),
	}
	if diff := cmp.Diff(want, p.Pools[0].Spec); diff != "" {
		t.Errorf("pool (-want +got):\n%s", diff)
	}
	records := []v1alpha1.MoveRecord{
		{Address: "10.100.0.10", Node: "n1", Namespace: "shop", Pod: "web-1", PodUID: "u1", Interface: "net1", ContainerID: "c1", MAC: "0a:00:00:00:00:01", Record: "10.100.0.0-24 offset 10 of shop/web-1"},
		{Address: "10.100.0.11", Node: "n2", Namespace: "shop", Pod: "web-2", PodUID: "u2", Interface: "net1", ContainerID: "c2", MAC: "0a:00:00:00:00:02", Record: "10.100.0.0-24 offset 11 of shop/web-2"},
	}
	if diff := cmp.Diff(records, p.Records); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	for _, row := range []struct{ got, want string }{
		{p.Changes[0].Frozen, strings.Replace(config, `["10.100.0.13/31"]`, `["10.100.0.13/31","10.100.0.0/24"]`, 1)},
		{p.Changes[0].Switched, `{"cniVersion":"0.3.1","name":"vlan100","plugins":[{"type":"macvlan","master":"eth1.100","ipam":{"type":"fenceline",
			"routes":[{"dst":"172.16.0.0/12","gw":"10.100.0.2"}],"default_ipv4_ippool":["vlan100"]}},{"type":"fenceline"}]}`},
	} {
		if diff := cmp.Diff(decoded(t, row.want), decoded(t, row.got)); diff != "" {
			t.Errorf("configuration (-want +got):\n%s", diff)
		}
	}
}

func decoded(t *testing.T, text string) (value any) {
	t.Helper()
	check.OK(t, json.Unmarshal([]byte(text), &value))
	return value
}

func TestWhatCannotBeAdoptedIsHeldWithAReason(t *testing.T) {
	record := func(a Allocation) func(*Facts) {
		return func(f *Facts) { f.Records[0].Allocations["10"] = a }
	}
	for want, change := range map[string]func(*Facts){
		"its record names no pod":                         record(Allocation{ID: "c1"}),
		"pod shop/gone of its record does not exist":      record(Allocation{"c1", "shop/gone", "net1"}),
		"names interface net7, and network-status":        record(Allocation{"c1", "shop/web-1", "net7"}),
		"pod shop/web-1 of its record has finished":       func(f *Facts) { f.Pods[0].Finished = true },
		"names pod shop/web-2, and network-status names":  record(Allocation{"c1", "shop/web-2", "net1"}),
		"the old IPAM has no record of it":                func(f *Facts) { delete(f.Records[0].Allocations, "10") },
		"pod " + strings.Repeat("long", 60)[:150] + "...": record(Allocation{"c1", strings.Repeat("long", 60), "net1"}),
	} {
		f := facts()
		change(&f)
		p := PlanOf(f)
		check.None(t, p.Blocks, "%s: blocks:", want)
		at := slices.IndexFunc(p.Records, func(r v1alpha1.MoveRecord) bool { return r.Address == "10.100.0.10" })
		check.Must(t, at >= 0 && p.Held() == 1, "%s: %+v", want, p.Records)
		check.Says(t, p.Records[at].Hold, strings.TrimSuffix(want, "..."))
	}
}

func TestWhatBlocksAMoveIsNamed(t *testing.T) {
	definition := func(old, replacement string) func(*Facts) {
		return func(f *Facts) { f.Definitions[0].Config = strings.Replace(config, old, replacement, 1) }
	}
	second := func(text string) func(*Facts) {
		return func(f *Facts) {
			f.Definitions = append(f.Definitions, Definition{Namespace: "shop", Name: "second", Config: text})
		}
	}
	for want, change := range map[string]func(*Facts){
		"there is no NetworkAttachmentDefinition shop/vlan100": func(f *Facts) { f.Definitions = nil },
		"read spec.config":                    definition("{", "["),
		"its IPAM is not whereabouts":         definition("whereabouts", "host-local"),
		"it has no range":                     definition(`"range":"10.100.0.0/24",`, ""),
		`range "10.100.0.0/99"`:               definition("10.100.0.0/24", "10.100.0.0/99"),
		"node_slice_size is set":              definition(`"range":`, `"node_slice_size":"/28","range":`),
		"addresses is set":                    definition(`"range":`, `"addresses":[{"address":"10.1.1.1/24"}],"range":`),
		"gateway:":                            definition("10.100.0.1\"", "router\""),
		"exclude:":                            definition("10.100.0.13/31", "10.100.0.13"),
		"range 10.100.0.0/24":                 definition("10.100.0.10\"", "10.9.0.10\""),
		"several of its plugins":              definition(config, `{"plugins":[`+config+","+config+"]}"),
		"give it only ranges of that network": second(`{"ipam":{"type":"whereabouts","range":"10.100.0.0/25","ipRanges":[{"range":"10.7.0.0/24"}]}}`),
		"different values of network_name":    second(`{"ipam":{"type":"whereabouts","range":"10.100.0.0/24","network_name":"b"}}`),
		"may have the same addresses":         second(`{"ipam":{"type":"whereabouts"}}`),
		"definition shop/second is of whereabouts too, and may have the same addresses: node_slice_size": second(`{"ipam":{"type":"whereabouts","node_slice_size":"/28","range":"10.100.0.0/25"}}`),
		"lies outside the addresses of the definition":                                                   func(f *Facts) { f.Records[0].Allocations["77"] = Allocation{PodRef: "shop/web-3"} },
		"offset 300 lies outside":                  func(f *Facts) { f.Records[0].Allocations["300"] = Allocation{} },
		`offset "x"`:                               func(f *Facts) { f.Records[0].Allocations["x"] = Allocation{} },
		"10.100.0.10 has two pods: shop/web-1 and": func(f *Facts) { f.Pods = append(f.Pods, podWith(3, "10.100.0.10")) },
		"10.100.0.10 has two records": func(f *Facts) {
			f.Definitions = append(f.Definitions, Definition{Namespace: "shop", Name: "half", Config: `{"ipam":{"type":"whereabouts","range":"10.100.0.0/25"}}`})
			f.Records = append(f.Records, Records{"10.100.0.0-25", "10.100.0.0/25", map[string]Allocation{"10": {PodRef: "shop/web-1"}}, ""})
		},
		"a pool shop.vlan100 exists": func(f *Facts) {
			f.Pools = make([]v1alpha1.IPPool, 2)
			f.Pools[0].Name, f.Pools[0].Spec.Subnet = "vlan100", "10.5.0.0/24"
			f.Pools[1].Name, f.Pools[1].Spec.Subnet = "shop.vlan100", "10.6.0.0/24"
		},
		"two ranges of one family": definition(`"range":`, `"ipRanges":[{"range":"10.7.0.0/24"}],"range":`),
		"pool p has addresses of 10.100.0.0/24": func(f *Facts) {
			f.Pools = []v1alpha1.IPPool{{}}
			f.Pools[0].Name, f.Pools[0].Spec.Subnet = "p", "10.100.0.0/28"
		},
		"and a move has at most 1024": many,
	} {
		f := facts()
		change(&f)
		check.Says(t, strings.Join(PlanOf(f).Blocks, "\n"), want)
	}
}

func many(f *Facts) {
	f.Definitions[0].Config = `{"ipam":{"type":"whereabouts","range":"10.96.0.0/16"}}`
	f.Records = []Records{{"10.96.0.0-16", "10.96.0.0/16", map[string]Allocation{}, ""}}
	for i := range v1alpha1.MaxMoveRecords + 1 {
		f.Records[0].Allocations[fmt.Sprint(i+1)] = Allocation{}
	}
}

func TestDefinitionsOfARangeMoveTogether(t *testing.T) {
	f := facts()
	f.Definitions = append(f.Definitions, Definition{
		Namespace: "shop", Name: "half", Owner: "Argo CD",
		Config: `{"name":"h","plugins":[{"type":"ipvlan","master":"eth1.100","ipam":{"type":"whereabouts","ipRanges":[{"range":"10.100.0.9-10.100.0.12/28"}]}},{"type":"tuning"}]}`,
	})
	p := PlanOf(f)
	check.None(t, p.Blocks, "blocks:")
	check.Must(t, len(p.Changes) == 2, "%d changes, want 2", len(p.Changes))
	check.Says(t, strings.Join(p.Notes, "\n"), "Argo CD owns definition shop/half", "definition shop/half has a range of this network")
	check.Says(t, p.Changes[1].Frozen, `"10.100.0.0/28"`)
	check.Says(t, p.Changes[1].Switched, `"tuning"`, `"vlan100"`)
	check.List(t, p.Pools[0].Spec.MultusName, []string{"shop/vlan100", "shop/half"}, "the pool serves")
	check.List(t, p.Pools[0].Spec.Parents, []string{"eth1.100"}, "parents")
}

// A pod that is being created has its record before its network-status.
func TestAPodThatStartsIsLeftToItsAgent(t *testing.T) {
	f := facts()
	f.Pods[0].Interfaces = nil
	f.Pools = []v1alpha1.IPPool{{}} // of a network of another namespace
	f.Pools[0].Name, f.Pools[0].Spec.Subnet = "vlan100", "10.5.0.0/24"
	f.Definitions = append(f.Definitions, Definition{Namespace: "pay", Name: "of-a-file"}, Definition{Namespace: "pay", Name: "broken", Config: "{"},
		Definition{Namespace: "pay", Name: "sliced", Config: `{"ipam":{"type":"whereabouts","node_slice_size":"/28","range":"10.7.0.0/24"}}`})
	p := PlanOf(f)
	check.None(t, p.Blocks, "blocks:")
	want := v1alpha1.MoveRecord{Address: "10.100.0.10", Node: "n1", Namespace: "shop", Pod: "web-1", PodUID: "u1", Interface: "net1", ContainerID: "c1", Record: "10.100.0.0-24 offset 10 of shop/web-1"}
	check.Equal(t, p.Records[0], want, "the record")
	check.Equal(t, p.Pools[0].Name, "shop.vlan100", "the pool")
}

func TestRecordsOfEachFormOfARangeAreFound(t *testing.T) {
	for _, row := range []struct{ text, network, records, first string }{
		{"10.0.0.7/24", "", "10.0.0.0-24", "10.0.0.1"},
		{"10.0.0.7-10.0.0.9/24", "b", "b-10.0.0.0-24", "10.0.0.1"},
		{"2001:db8::/64", "", "2001-db8---64", "2001:db8::1"},
		{"2001:db8:0:ff::5-2001:db8:0:ff::ff/64", "", "2001-db8-0-ff---64", "2001:db8:0:ff::1"},
	} {
		s := check.Value(rangeConfig{Range: row.text}.served(row.network))(t)
		check.Equal(t, s.records, row.records, "%s:", row.text)
		check.Equal(t, check.Value(Records{Range: s.prefix.String()}.addressOf("1"))(t).String(), row.first, "%s:", row.text)
	}
	a := check.Value(Records{Range: "10.0.0.0/16"}.addressOf("511"))(t)
	check.Equal(t, a.String(), "10.0.1.255", "offset 511:")
}

// After an adopted pod has ended, the old IPAM may give its address to another pod, if others undo the freeze.
func TestARecordOfAnotherPodIsNew(t *testing.T) {
	of := func(address, uid, hold string) v1alpha1.MoveRecord {
		return v1alpha1.MoveRecord{Address: address, PodUID: uid, Hold: hold}
	}
	m := &v1alpha1.Move{Spec: v1alpha1.MoveSpec{Records: []v1alpha1.MoveRecord{of("10.0.0.1", "a", ""), of("10.0.0.2", "b", "")}}}
	leases := []v1alpha1.IPLease{{Spec: v1alpha1.IPLeaseSpec{Address: "10.0.0.2", Holder: &v1alpha1.Holder{PodUID: "b"}}}}
	for name, c := range map[string]struct {
		now  v1alpha1.MoveRecord
		want bool
	}{
		"the same pod":                      {of("10.0.0.1", "a", ""), false},
		"another pod":                       {of("10.0.0.1", "c", ""), true},
		"a record without a pod":            {of("10.0.0.1", "", "gone"), false},
		"a pod without a record":            {of("10.0.0.1", "c", noRecord), false},
		"another pod, but there is a lease": {of("10.0.0.2", "c", ""), false},
		"another address":                   {of("10.0.0.3", "c", ""), true},
	} {
		added := Added(m, []v1alpha1.MoveRecord{c.now}, leases)
		check.Equal(t, len(added) == 1, c.want, "%s: added", name)
		check.Equal(t, len(With(m.Spec.Records, added)) == 3, c.want && c.now.Address == "10.0.0.3", "%s: grows", name)
	}
}
