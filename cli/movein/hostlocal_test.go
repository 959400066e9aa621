// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

const local = `{"cniVersion":"1.0.0","name":"old","type":"macvlan","master":"eth1.100","ipam":{"type":"host-local",
	"subnet":"10.100.0.0/24","rangeStart":"10.100.0.10","rangeEnd":"10.100.0.19"}}`

// files are those of two pods of a network on two nodes.
func files() Facts {
	at := Directory{"/var/lib/cni/networks", "old"}
	of := func(addr, container string) File {
		return File{Directory: at, Address: netip.MustParseAddr(addr), Container: container, Interface: "net1"}
	}
	return Facts{
		From: v1alpha1.MoveHostLocal, Network: "shop/vlan100",
		Definitions: []Definition{{Namespace: "shop", Name: "vlan100", Config: local}},
		Nodes:       []NodeFiles{{Node: "n1", Files: []File{of("10.100.0.10", "c1")}}, {Node: "n2", Files: []File{of("10.100.0.11", "c2")}}},
		Pods:        []Pod{podWith(1, "10.100.0.10"), podWith(2, "10.100.0.11")},
	}
}

func TestANetworkOfHostLocalIsPlanned(t *testing.T) {
	p := PlanOf(files())
	check.None(t, p.Blocks, "blocks:")
	spec := p.Pools[0].Spec
	check.List(t, append(spec.IPs, spec.ExcludeIPs...), []string{"10.100.0.10-10.100.0.19", "10.100.0.1"}, "addresses of the pool")
	check.That(t, spec.Gateway == nil && spec.Parents[0] == "eth1.100", "the pool is %+v", spec)
	want := []v1alpha1.MoveRecord{
		{Address: "10.100.0.10", Node: "n1", Namespace: "shop", Pod: "web-1", PodUID: "u1", Interface: "net1", ContainerID: "c1", MAC: "0a:00:00:00:00:01", Record: "file /var/lib/cni/networks/old/10.100.0.10 on node n1"},
		{Address: "10.100.0.11", Node: "n2", Namespace: "shop", Pod: "web-2", PodUID: "u2", Interface: "net1", ContainerID: "c2", MAC: "0a:00:00:00:00:02", Record: "file /var/lib/cni/networks/old/10.100.0.11 on node n2"},
	}
	if diff := cmp.Diff(want, p.Records); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	check.List(t, p.Freeze(), []netip.Addr{netip.MustParseAddr("10.100.0.10"), netip.MustParseAddr("10.100.0.19")}, "the freeze has")
	c := p.Changes[0]
	check.Says(t, c.Switched, `"type": "fenceline"`, `"vlan100"`)
	check.Equal(t, check.Value(c.Returned(nil))(t), local, "without an address of Fenceline")
	returned := check.Value(c.Returned([]netip.Addr{netip.MustParseAddr("10.100.0.12"), netip.MustParseAddr("10.200.0.1")}))(t)
	for _, row := range []struct{ got, want string }{
		{c.Frozen, `[[{"subnet":"10.100.0.0/24","rangeStart":"10.100.0.1","rangeEnd":"10.100.0.1","gateway":"10.100.0.1"}]]`},
		{returned, `[[{"subnet":"10.100.0.0/24","rangeStart":"10.100.0.10","rangeEnd":"10.100.0.11"},{"subnet":"10.100.0.0/24","rangeStart":"10.100.0.13","rangeEnd":"10.100.0.19"}]]`},
	} {
		whole := `{"cniVersion":"1.0.0","name":"old","type":"macvlan","master":"eth1.100","ipam":{"type":"host-local","ranges":` + row.want + `}}`
		if diff := cmp.Diff(decoded(t, whole), decoded(t, row.got)); diff != "" {
			t.Errorf("configuration (-want +got):\n%s", diff)
		}
	}
	for config, want := range map[string]State{local: Before, c.Frozen: Frozen, c.Switched: Switched, returned: Returning, `{}`: Edited} {
		check.Equal(t, c.StateOf(config), want, "%s:", config)
	}
}

// A range without an address has no start that host-local takes, and a DEL reads it too.
func TestARangeThatIsUsedUpStaysValid(t *testing.T) {
	f := files()
	f.Definitions[0].Config = strings.Replace(local, "10.100.0.19", "10.100.0.11", 1)
	c := PlanOf(f).Changes[0]
	returned := check.Value(c.Returned([]netip.Addr{netip.MustParseAddr("10.100.0.10"), netip.MustParseAddr("10.100.0.11")}))(t)
	check.That(t, v1alpha1.SameConfig(returned, c.Frozen), "the definition is %s", returned)
}

func TestFilesThatProveNothingHoldTheirAddress(t *testing.T) {
	file := func(edit func(*File)) func(*Facts) { return func(f *Facts) { edit(&f.Nodes[0].Files[0]) } }
	for want, change := range map[string]func(*Facts){
		"its file is empty":                                         file(func(f *File) { f.Container, f.Interface = "", "" }),
		"its file is older than the boot of node n1":                file(func(f *File) { f.Old = true }),
		"no pod of node n1 has it by network-status":                func(f *Facts) { f.Pods = f.Pods[1:] },
		"its file is on node n1, and its pod shop/web-1 on node n9": func(f *Facts) { f.Pods[0].Node = "n9" },
		"its file names interface net7, and network-status":         file(func(f *File) { f.Interface = "net7" }),
		"the old IPAM has no record of it":                          func(f *Facts) { f.Nodes[0].Files = nil },
	} {
		f := files()
		change(&f)
		p := PlanOf(f)
		check.None(t, p.Blocks, "%s: blocks:", want)
		check.Must(t, len(p.Records) == 2 && p.Held() == 1, "%s: %+v", want, p.Records)
		check.Says(t, p.Records[0].Hold, want)
		hasPod := !strings.HasPrefix(want, "no pod")
		check.That(t, (p.Records[0].PodUID == "u1") == hasPod && p.Records[0].ContainerID == "", "%s: %+v", want, p.Records[0])
	}
}

// Each node gives addresses alone. The file of the pod's node counts, and all of them are named.
func TestAnAddressWithFilesOnSeveralNodes(t *testing.T) {
	f := files()
	twin := f.Nodes[0].Files[0]
	twin.Container = "c9"
	f.Nodes = slices.Insert(f.Nodes, 0, NodeFiles{Node: "n0", Files: []File{twin}})
	p := PlanOf(f)
	check.None(t, p.Blocks, "blocks:")
	check.That(t, p.Records[0].Node == "n1" && p.Records[0].ContainerID == "c1" && p.Records[0].Hold == "", "the record is %+v", p.Records[0])
	check.Says(t, strings.Join(p.Notes, "\n"), "10.100.0.10 has files on several nodes", "node n1 (c1), node n0 (c9)")

	f = files() // a Move that somebody has deleted
	f.Nodes[1].Marked = 7
	check.Says(t, strings.Join(PlanOf(f).Notes, "\n"), "node n2 has 7 files of a move of this network")
}

func TestWhatBlocksAMoveFromHostLocal(t *testing.T) {
	definition := func(old, replacement string) func(*Facts) {
		return func(f *Facts) { f.Definitions[0].Config = strings.Replace(local, old, replacement, 1) }
	}
	ipam := func(text string) func(*Facts) {
		return func(f *Facts) { f.Definitions[0].Config = `{"ipam":{"type":"host-local",` + text + `}}` }
	}
	for want, change := range map[string]func(*Facts){
		"the files of host-local on node n3 are not known: it has no agent": func(f *Facts) {
			f.Nodes = append(f.Nodes, NodeFiles{Node: "n3", Away: "it has no agent that is Ready"})
		},
		"its IPAM is not host-local": definition("host-local", "dhcp"),
		"it has no range":            ipam(`"ranges":[]`),
		"a set of ranges is empty":   ipam(`"ranges":[[]]`),
		"subnet: netip.ParsePrefix":  definition("10.100.0.0/24", "10.100.0.0"),
		"has host bits, or too few":  definition("10.100.0.0/24", "10.100.0.7/24"),
		"gateway: ParseAddr":         ipam(`"subnet":"10.100.0.0/24","gateway":"router"`),
		"are no range of":            definition("10.100.0.19", "10.101.0.19"),
		"has the subnets":            ipam(`"ranges":[[{"subnet":"10.100.0.0/24"},{"subnet":"10.101.0.0/24"}]]`),
		"has the gateways":           ipam(`"ranges":[[{"subnet":"10.100.0.0/24","rangeEnd":"10.100.0.9","gateway":"10.100.0.1"},{"subnet":"10.100.0.0/24","rangeStart":"10.100.0.10","gateway":"10.100.0.2"}]]`),
		"two ranges of one family":   ipam(`"ranges":[[{"subnet":"10.100.0.0/24"}],[{"subnet":"10.101.0.0/24"}]]`),
		"the ranges have more than":  ipam(`"subnet":"10.0.0.0/8"`),
		`is no directory`:            definition(`"old"`, `"../old"`),
		"lies outside the addresses": func(f *Facts) { f.Nodes[0].Files[0].Address = netip.MustParseAddr("10.100.0.77") },
		"cannot be read: it is too":  func(f *Facts) { f.Nodes[0].Files[0].Problem = "it is too long" },
		"has no container ID in its": func(f *Facts) { f.Nodes[0].Files[0].Container = "fenceline-move/other" },
		"10.100.0.10 has two pods":   func(f *Facts) { f.Pods = append(f.Pods, podWith(3, "10.100.0.10")) },
		"/var/lib/cni/networks and in /run/tenant": func(f *Facts) {
			f.Definitions = append(f.Definitions, Definition{Namespace: "pay", Name: "other", Config: strings.Replace(local, `"subnet"`, `"dataDir":"/run/tenant","subnet"`, 1)})
		},
		`the masters "eth1.100" and "eth2"`: func(f *Facts) {
			f.Definitions = append(f.Definitions, Definition{Namespace: "pay", Name: "other", Config: strings.Replace(local, "eth1.100", "eth2", 1)})
		},
		"may have the same addresses:": func(f *Facts) {
			f.Definitions = append(f.Definitions, Definition{Config: `{"ipam":{"type":"host-local"}}`})
		},
	} {
		f := files()
		change(&f)
		check.Says(t, strings.Join(PlanOf(f).Blocks, "\n"), want)
	}
}

// Files of other networks in the same directory, and old ones outside the range, are no matter of the move.
func TestFilesOutsideTheRangeOfAMove(t *testing.T) {
	f := files()
	other := strings.NewReplacer("10.100.0.10", "10.100.0.70", "10.100.0.19", "10.100.0.79").Replace(local)
	f.Definitions = append(f.Definitions, Definition{Namespace: "pay", Name: "vlan100", Config: other})
	outside, old, elsewhere := f.Nodes[0].Files[0], f.Nodes[0].Files[0], f.Nodes[0].Files[0]
	outside.Address, old.Address, old.Old = netip.MustParseAddr("10.100.0.77"), netip.MustParseAddr("10.100.0.99"), true
	elsewhere.Directory.Network = "new"
	f.Nodes[0].Files = append(f.Nodes[0].Files, outside, old, elsewhere)
	p := PlanOf(f)
	check.None(t, p.Blocks, "blocks:")
	check.That(t, len(p.Records) == 2 && len(p.Changes) == 1 && p.Held() == 0, "the plan is %+v", p)
	check.List(t, f.Directories(), []Directory{{"/var/lib/cni/networks", "old"}}, "directories")

	// Another move and another pool have files here too.
	marked, moved := f.Nodes[0].Files[0], f.Nodes[0].Files[0]
	marked.Address, marked.Container = netip.MustParseAddr("10.100.0.101"), Mark("pay/vlan100")
	moved.Address = netip.MustParseAddr("10.100.0.102")
	f.Nodes[0].Files = append(f.Nodes[0].Files, marked, moved)
	f.Pools = []v1alpha1.IPPool{{Spec: v1alpha1.IPPoolSpec{Subnet: "10.100.0.102/32"}}}
	p = PlanOf(f)
	check.None(t, p.Blocks, "blocks:")
	check.Says(t, strings.Join(p.Notes, "\n"), "node n1 has 2 files of addresses outside the ranges")
	f.Pools = nil
	check.Says(t, strings.Join(PlanOf(f).Blocks, "\n"), "10.100.0.102 (file")

	f.Definitions[1].Config = strings.Replace(strings.Replace(local, `"old"`, `"second"`, 1), "10.100.0.10", "10.100.0.15", 1)
	check.List(t, f.Directories(), []Directory{{"/var/lib/cni/networks", "old"}, {"/var/lib/cni/networks", "second"}}, "directories")
}

func TestBothFamiliesAndGatewaysOfHostLocal(t *testing.T) {
	f := files()
	f.Definitions[0].Config = `{"plugins":[{"type":"ipvlan","master":"eth1","ipam":{"type":"host-local","dataDir":"/run/cni/","routes":[{"dst":"0.0.0.0/0"}],
		"ranges":[[{"subnet":"10.100.0.0/24","rangeEnd":"10.100.0.15"},{"subnet":"10.100.0.0/24","rangeStart":"10.100.0.17"}],
		[{"subnet":"2001:db8::/64","rangeStart":"2001:db8::10","rangeEnd":"2001:db8::1f","gateway":"2001:db8::1"}]]}},{"type":"tuning"}]}`
	p := PlanOf(f)
	check.None(t, p.Blocks, "blocks:")
	check.Must(t, len(p.Pools) == 2, "%d pools", len(p.Pools))
	check.List(t, p.Pools[0].Spec.IPs, []string{"10.100.0.1-10.100.0.15", "10.100.0.17-10.100.0.254"}, "addresses")
	check.Equal(t, *p.Pools[0].Spec.Gateway, "10.100.0.1", "the gateway of the routes")
	check.Equal(t, *p.Pools[1].Spec.Gateway, "2001:db8::1", "the gateway")
	check.Equal(t, f.Directories()[0].String(), "/run/cni/vlan100", "the directory")
	check.Says(t, p.Changes[0].Frozen, `"rangeEnd": "2001:db8::1"`, `"tuning"`)
}

// The programs ignore the case of keys, but an edit of the definition does not. If an edit would not freeze a
// definition, the plan blocks.
func TestKeysInAnotherCaseBlock(t *testing.T) {
	for _, key := range []string{"ipam", "type\":\"host-local", "subnet", "rangeStart", "rangeEnd"} {
		f := files()
		f.Definitions[0].Config = strings.Replace(local, key, strings.ToUpper(key[:1])+strings.ToLower(key[1:]), 1)
		check.Says(t, strings.Join(PlanOf(f).Blocks, "\n"), "host-local would still give addresses that it must not")
	}
	for _, key := range []string{"ipam", "range\"", "exclude", "type\":\"whereabouts"} {
		f := facts()
		f.Definitions[0].Config = strings.Replace(config, `"`+key, `"`+strings.ToUpper(key[:1])+key[1:], 1)
		check.Says(t, strings.Join(PlanOf(f).Blocks, "\n"), "whereabouts would still give addresses that it must not")
	}
	second := facts() // the way back of the first range is right
	second.Definitions[0].Config = `{"ipam":{"type":"whereabouts","ipRanges":[{"range":"10.100.0.0/24"},{"Range":"2001:db8::/120"}]}}`
	check.Says(t, strings.Join(PlanOf(second).Blocks, "\n"), "whereabouts would still give addresses that it must not")
	f := files()
	f.Definitions[0].Config = strings.Replace(local, `"ipam":{`, `"ipam":{"ranges":[],"Ranges":[[{"subnet":"10.200.0.0/24"}]],`, 1)
	check.That(t, len(PlanOf(f).Blocks) > 0, "ranges of two spellings do not block")
}

// Only a file of the pod's own sandbox on its own node keeps host-local from giving its address.
func TestAPodGoesBackOnlyToTheFileOfItsNode(t *testing.T) {
	records := PlanOf(files()).Records
	check.List(t, PlanOf(files()).Unrecorded(records), records, "records")
	for name, change := range map[string]func(*Facts){
		"a file on another node": func(f *Facts) {
			f.Nodes[1].Files = append(f.Nodes[1].Files, f.Nodes[0].Files[0])
			f.Nodes[0].Files = nil
		},
		"a file of another container": func(f *Facts) { f.Nodes[0].Files[0].Container = "c9" },
		"an empty file":               func(f *Facts) { f.Nodes[0].Files[0].Container = "" },
		"a node that is away":         func(f *Facts) { f.Nodes[0].Files, f.Nodes[0].Away = nil, "it has no agent that is Ready" },
	} {
		f := files()
		change(&f)
		lost := PlanOf(f).Unrecorded(records)
		check.That(t, lost[0].Hold == noRecord && lost[1].Hold == "", "%s: %+v", name, lost)
		check.List(t, PlanOf(files()).Unrecorded(lost), records, "%s: records when the file is read again", name)
	}
}

func TestFilesOfAMoveThatLack(t *testing.T) {
	f := files()
	f.Nodes[0].Marked, f.Nodes[1].Marked = 9, 7
	f.Nodes = append(f.Nodes, NodeFiles{Node: "n3"}, NodeFiles{Node: "n4", Away: "it has no agent that is Ready"})
	p := PlanOf(f)
	check.List(t, p.Holes(), []string{"node n2 lacks 2 files of the move", "node n3 lacks 10 files of the move"}, "holes")
	check.That(t, !p.HasUnknown(), "each file has a pod")
	f.Pods = f.Pods[1:]
	check.That(t, PlanOf(f).HasUnknown(), "a file has no pod yet")
	f.Nodes[0].Files[0].Old = true
	check.That(t, !PlanOf(f).HasUnknown(), "a file from before the boot is of no ADD")
}

// Anybody may make a definition. It keeps a network from moving in, and a move that has begun not from going back.
func TestADefinitionOfOthersInAMove(t *testing.T) {
	for _, config := range []string{
		`{"ipam":{"type":"host-local"}}`, strings.Replace(local, "eth1.100", "eth2", 1),
		strings.Replace(local, `"ipam":{`, `"ipam":{"ranges":[[{"subnet":"10.200.0.0/24"}]],`, 1),
	} {
		f := files()
		own := PlanOf(f)
		f.Definitions = append(f.Definitions, Definition{Namespace: "pay", Name: "other", Config: config})
		check.That(t, len(PlanOf(f).Blocks) == 1 && len(PlanOf(f).Changes) == 0, "no move: %+v", PlanOf(f))
		move := &v1alpha1.Move{Spec: v1alpha1.MoveSpec{Definitions: own.Definitions()}}
		p := PlanOf(f.Before(move))
		check.Must(t, len(p.Strangers) == 1 && len(p.Blocks) == 1, "in a move: %+v", p)
		check.Says(t, p.Strangers[0], "pay/other")
		check.That(t, len(p.Changes) == 1 && len(p.Records) == 2, "in a move: %+v", p)
		move.Spec.Definitions = append(move.Spec.Definitions, v1alpha1.MoveDefinition{Namespace: "pay", Name: "other", Config: strings.Replace(local, "eth1.100", "eth2", 1)})
		check.That(t, len(PlanOf(f.Before(move)).Strangers) == 0 && len(PlanOf(f.Before(move)).Changes) == 2, "a definition of the move: %+v", PlanOf(f.Before(move)))
	}
}
