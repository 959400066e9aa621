// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// names returns the pools of a choice as "v4: a b; v6: c".
func names(c Choice) string {
	var parts []string
	for _, f := range c.Families {
		part := "v4:"
		if f.IPv6 {
			part = "v6:"
		}
		for _, p := range f.Pools {
			part += " " + p.Pool.Name
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

type choiceCase struct {
	rule    string
	request Request
	pools   []*poolOf
	want    string
}

func runChoices(t *testing.T, cases []choiceCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			got := check.Value(ChoosePools(c.request, objects(c.pools...), poolset.Set{}))(t)
			check.That(t, names(got) == c.want, "got  %q\nwant %q", names(got), c.want)
		})
	}
}

func TestCandidatesComeFromTheFirstSourceThatNamesAny(t *testing.T) {
	all := []*poolOf{v4("a"), v4("b"), v4("c"), v4("d"), v4("e").asDefault(), v6("f").asDefault(), v6("g")}
	pools := onPod("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["a"]}]`)
	single := onPod("ipam.fenceline.io/ippool", `{"ipv4":["b"]}`)
	namespace := onNamespace("ipam.fenceline.io/default-ipv4-ippool", `["c"]`)
	config := inConfig([]string{"d"}, nil)

	runChoices(t, []choiceCase{
		{"ippools goes before ippool", requestOf(pools, single, namespace, config), all, "v4: a"},
		{"ippool goes before the namespace", requestOf(single, namespace, config), all, "v4: b"},
		{"the namespace goes before the CNI configuration", requestOf(namespace, config), all, "v4: c"},
		{"the CNI configuration goes before spec.default", requestOf(config), all, "v4: d"},
		{"spec.default is the last", requestOf(), all, "v4: e; v6: f"},
		{"one source serves both families", requestOf(inConfig([]string{"d"}, []string{"g"})), all, "v4: d; v6: g"},
		{"a source that names one family leaves the other out", requestOf(config), all, "v4: d"},
		{"a namespace's families have an annotation each",
			requestOf(namespace, onNamespace("ipam.fenceline.io/default-ipv6-ippool", `["g"]`)), all, "v4: c; v6: g"},
		{"default pools are in the order of their names", requestOf(), []*poolOf{v4("z").asDefault(), v4("a").asDefault()}, "v4: a z"},
	})
}

func TestAnnotationNames(t *testing.T) {
	all := []*poolOf{v4("a"), v4("b"), v6("c")}
	runChoices(t, []choiceCase{
		{"the other prefix is understood on pods", requestOf(onPod("ipam.spidernet.io/ippool", `{"ipv4":["a"]}`)), all, "v4: a"},
		{"ours wins on pods", requestOf(onPod("ipam.spidernet.io/ippool", `{"ipv4":["a"]}`),
			onPod("ipam.fenceline.io/ippool", `{"ipv4":["b"]}`)), all, "v4: b"},
		{"the other prefix is understood on namespaces",
			requestOf(onNamespace("ipam.spidernet.io/default-ipv4-ippool", `["a"]`)), all, "v4: a"},
		{"the older name is understood", requestOf(onNamespace("ipam.spidernet.io/defaultv4ippool", `["a"]`)), all, "v4: a"},
		{"the older names are understood for both families", requestOf(onNamespace("ipam.spidernet.io/defaultv4ippool", `["a"]`),
			onNamespace("ipam.spidernet.io/defaultv6ippool", `["c"]`)), all, "v4: a; v6: c"},
		{"the newer name wins", requestOf(onNamespace("ipam.spidernet.io/defaultv4ippool", `["a"]`),
			onNamespace("ipam.spidernet.io/default-ipv4-ippool", `["b"]`)), all, "v4: b"},
		{"our older name goes before the other prefix's newer one", requestOf(onNamespace("ipam.fenceline.io/defaultv4ippool", `["a"]`),
			onNamespace("ipam.spidernet.io/default-ipv4-ippool", `["b"]`)), all, "v4: a"},
	})
}

// A manifest that was moved from Spiderpool may still have its annotations.
func TestALeftoverAnnotationNeitherWinsNorRefuses(t *testing.T) {
	all := []*poolOf{v4("a"), v4("b"), v6("s")}
	ours := onPod("ipam.fenceline.io/ippool", `{"ipv4":["b"]}`)
	onOurNamespace := onNamespace("ipam.fenceline.io/default-ipv4-ippool", `["b"]`)
	runChoices(t, []choiceCase{
		{"ippools that names another pool", requestOf(ours, onPod("ipam.spidernet.io/ippools", `[{"interface":"eth0","ipv4":["a"]}]`)), all, "v4: b"},
		{"ippools that is no JSON", requestOf(ours, onPod("ipam.spidernet.io/ippools", `{`)), all, "v4: b"},
		{"ippools with an interface that the pod does not have", requestOf(ours, onPod("k8s.v1.cni.cncf.io/networks", "blue"),
			onPod("ipam.spidernet.io/ippools", `[{"interface":"net7","ipv4":["a"]}]`)), all, "v4: b"},
		{"subnet, which is refused alone", requestOf(ours, onPod("ipam.spidernet.io/subnet", `{"ipv4":["x"]}`)), all, "v4: b"},
		{"ippool beside our ippools, which has no entry for the interface", requestOf(onPod("ipam.fenceline.io/ippools", `[{"interface":"net1","ipv4":["a"]}]`),
			onPod("ipam.spidernet.io/ippool", `{"ipv4":["a"]}`), onNamespace("ipam.fenceline.io/default-ipv4-ippool", `["b"]`)), all, "v4: b"},
		{"the other family of a namespace", requestOf(onOurNamespace, onNamespace("ipam.spidernet.io/default-ipv6-ippool", `["gone"]`)), all, "v4: b"},
		{"an older name of a namespace that is no JSON", requestOf(onOurNamespace, onNamespace("ipam.spidernet.io/defaultv6ippool", `x`)), all, "v4: b"},
		{"routes that are no JSON beside ours", requestOf(ours, onPod("ipam.fenceline.io/routes", `[]`), onPod("ipam.spidernet.io/routes", `x`)), all, "v4: b"},
		{"alone on the pod, it counts", requestOf(onPod("ipam.spidernet.io/ippools", `[{"interface":"eth0","ipv4":["a"]}]`), onOurNamespace), all, "v4: a"},
	})
}

func TestPoolsPerInterface(t *testing.T) {
	all := []*poolOf{v4("a"), v4("b"), v4("c").asDefault()}
	named := onPod("ipam.fenceline.io/ippools", `[{"interface":"net1","ipv4":["a"]},{"interface":"eth0","ipv4":["b"]}]`)
	ordered := onPod("ipam.fenceline.io/ippools", `[{"ipv4":["a"]},{"ipv4":["b"]}]`)
	mixed := onPod("ipam.fenceline.io/ippools", `[{"ipv4":["a"]},{"interface":"eth0","ipv4":["b"]}]`)
	runChoices(t, []choiceCase{
		{"an entry is found by its interface", requestOf(named), all, "v4: b"},
		{"the first entry without a name is the first interface's", requestOf(ordered), all, "v4: a"},
		{"an entry without a name counts by order", requestOf(ordered, onInterface("net1", has("eth0"))), all, "v4: b"},
		{"a name goes before the order", requestOf(mixed, onInterface("eth0")), all, "v4: b"},
		{"an interface without an entry asks the next source", requestOf(named, onInterface("net2", has("eth0"), has("net1"))), all, "v4: c"},
		{"ippool holds for every interface", requestOf(onPod("ipam.fenceline.io/ippool", `{"ipv4":["a"]}`), onInterface("net2", has("eth0"), has("net1"))), all, "v4: a"},
	})
}

func TestPatternsAndOrder(t *testing.T) {
	all := []*poolOf{v4("rack-2"), v4("rack-1"), v4("rack-10"), v4("spare"), v6("rack-6")}
	runChoices(t, []choiceCase{
		{"the user's order is kept", requestOf(inConfig([]string{"spare", "rack-1"}, nil)), all, "v4: spare rack-1"},
		{"* matches any text, by name", requestOf(inConfig([]string{"rack-*"}, nil)), all, "v4: rack-1 rack-10 rack-2"},
		{"? matches one character", requestOf(inConfig([]string{"rack-?"}, nil)), all, "v4: rack-1 rack-2"},
		{"[] matches a choice", requestOf(inConfig([]string{"rack-[26]"}, nil)), all, "v4: rack-2"},
		{"a pattern means pools of its family", requestOf(inConfig(nil, []string{"*"})), all, "v6: rack-6"},
		{"a pool that was named before a pattern stays before", requestOf(inConfig([]string{"rack-2", "rack-*"}, nil)), all, "v4: rack-2 rack-1 rack-10"},
		{"a pattern of an annotation", requestOf(onPod("ipam.fenceline.io/ippool", `{"ipv4":["sp*","rack-1"]}`)), all, "v4: spare rack-1"},
	})
}

func TestSorting(t *testing.T) {
	pod := func(p *poolOf) *poolOf { return p.podsWith("app", "web") }
	node := func(p *poolOf) *poolOf { return p.nodes("n1") }
	nodeLabel := func(p *poolOf) *poolOf { return p.nodesWith("rack", "r1") }
	namespace := func(p *poolOf) *poolOf { return p.namespaces("shop") }
	namespaceLabel := func(p *poolOf) *poolOf { return p.namespacesWith("tier", "gold") }
	multus := func(p *poolOf) *poolOf { return p.attachments("kube-system/macvlan") }

	// Each row names B before A; A comes first all the same, except in a tie.
	for _, c := range []struct {
		rule string
		a, b *poolOf
		want string
	}{
		// The three examples of the documents.
		{"{podAffinity + nodeName} before {podAffinity}", node(pod(v4("a"))), pod(v4("b")), "v4: a b"},
		{"{podAffinity} before {nodeName + namespaceName}", pod(v4("a")), namespace(node(v4("b"))), "v4: a b"},
		{"{podAffinity + nodeName} before {podAffinity + namespaceName + multusName}", node(pod(v4("a"))), multus(namespace(pod(v4("b")))), "v4: a b"},

		{"podAffinity before nothing", pod(v4("a")), v4("b"), "v4: a b"},
		{"{nodeName + namespaceName} before nothing", namespace(node(v4("a"))), v4("b"), "v4: a b"},
		{"nodeName before nodeAffinity", node(v4("a")), nodeLabel(v4("b")), "v4: a b"},
		{"nodeAffinity before nothing", nodeLabel(v4("a")), v4("b"), "v4: a b"},
		{"nodeAffinity before namespaceName", nodeLabel(v4("a")), namespace(v4("b")), "v4: a b"},
		{"namespaceName before namespaceAffinity", namespace(v4("a")), namespaceLabel(v4("b")), "v4: a b"},
		{"namespaceAffinity before multusName", namespaceLabel(v4("a")), multus(v4("b")), "v4: a b"},
		{"multusName before nothing", multus(v4("a")), v4("b"), "v4: a b"},
		{"nodeName and nodeAffinity count as nodeName", nodeLabel(node(v4("a"))), node(v4("b")), "v4: b a"},
		{"ties keep the source's order", node(v4("a")), node(v4("b")), "v4: b a"},
		{"a selector that selects everything restricts nothing", func() *poolOf {
			p := v4("a")
			p.Spec.PodAffinity = labelled("x", "y")
			p.Spec.PodAffinity.MatchLabels = nil
			return p
		}(), v4("b"), "v4: b a"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got, err := ChoosePools(requestOf(inConfig([]string{"b", "a"}, nil)), objects(c.b, c.a), poolset.Set{})
			check.That(t, err == nil && names(got) == c.want, "got %q, %v, want %q", names(got), err, c.want)
		})
	}
}

func TestFamilies(t *testing.T) {
	runChoices(t, []choiceCase{
		{"a default pool for other nodes does not make its family wanted", requestOf(),
			[]*poolOf{v4("a").asDefault(), v6("b").asDefault().nodes("n2")}, "v4: a"},
		{"nor does one that is disabled besides", requestOf(),
			[]*poolOf{v4("a").asDefault(), v6("b").asDefault().nodes("n2").disabled()}, "v4: a"},
		{"the backup of a family is enough", requestOf(),
			[]*poolOf{v4("a").asDefault(), v6("b").asDefault().disabled(), v6("c").asDefault()}, "v4: a; v6: c"},
	})
	for _, c := range []choiceCase{
		{"a family that was named is wanted", requestOf(inConfig([]string{"a"}, []string{"b"})),
			[]*poolOf{v4("a"), v6("b").nodes("n2")}, "no IPv6 address for pod shop/web-0 interface eth0 from the pools of the CNI configuration: " +
				"pool b: its nodeName [n2] does not list node n1"},
		{"a default pool that is disabled makes its family wanted", requestOf(),
			[]*poolOf{v4("a").asDefault(), v6("b").asDefault().disabled()}, "no IPv6 address for pod shop/web-0 interface eth0 from the pools of spec.default: " +
				"pool b: it is disabled"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := ChoosePools(c.request, objects(c.pools...), poolset.Set{})
			check.That(t, err != nil && err.Error() == c.want, "got  %v\nwant %s", err, c.want)
		})
	}
}

func TestEveryRejectionHasItsReason(t *testing.T) {
	for _, c := range []struct {
		rule   string
		pool   *poolOf
		reason Reason
		detail string
	}{
		{"being deleted", v4("a").deleting(), Deleting, "it is being deleted"},
		{"disabled", v4("a").disabled(), Disabled, "it is disabled"},
		{"wrong family", v6("a"), WrongFamily, "its subnet fd00::/64 is of the other family"},
		{"invalid", v4("a").ips("x", "y"), Invalid, `it is invalid (spec.ips[0]: "x" is not an IP address, spec.ips[1]: "y" is not an IP address)`},
		{"not Ready", v4("a").notReady("Overlapping", "older pools have some of the addresses: b"), NotReady,
			"it is not Ready (Overlapping: older pools have some of the addresses: b)"},
		{"nodeName", v4("a").nodes("n2", "n3"), NodeName, "its nodeName [n2 n3] does not list node n1"},
		{"nodeName goes before nodeAffinity", v4("a").nodes("n2").nodesWith("rack", "r1"), NodeName, "its nodeName [n2] does not list node n1"},
		{"nodeAffinity", v4("a").nodesWith("rack", "r2"), NodeAffinity, "its nodeAffinity (rack=r2) does not match the labels of node n1"},
		{"namespaceName", v4("a").namespaces("bank"), NamespaceName, "its namespaceName [bank] does not list namespace shop"},
		{"namespaceName goes before namespaceAffinity", v4("a").namespaces("bank").namespacesWith("tier", "gold"), NamespaceName, "its namespaceName [bank] does not list namespace shop"},
		{"namespaceAffinity", v4("a").namespacesWith("tier", "tin"), NamespaceAffinity, "its namespaceAffinity (tier=tin) does not match the labels of namespace shop"},
		{"podAffinity", v4("a").podsWith("app", "db"), PodAffinity, "its podAffinity (app=db) does not match the labels of pod shop/web-0"},
		{"multusName", v4("a").attachments("kube-system/sriov"), MultusName, "its multusName [kube-system/sriov] does not list the attachment kube-system/macvlan"},
		{"all excluded", v4("a").ips("10.0.0.9").without("10.0.0.0/28"), AllExcluded, "all its addresses are excluded"},
		{"all reserved", v4("a").ips("10.0.0.200"), AllReserved, "all its addresses are reserved"},
		{"all excluded, and the controller has seen it", v4("a").ips("10.0.0.9").without("10.0.0.0/28").notReady("AllExcluded", "no address"),
			AllExcluded, "all its addresses are excluded"},
		{"all reserved, and the controller has seen it", v4("a").ips("10.0.0.200").notReady("AllReserved", "no address"),
			AllReserved, "all its addresses are reserved"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := ChoosePools(requestOf(inConfig([]string{"a"}, nil)), objects(c.pool), setOf(t, "10.0.0.200"))
			none := (*NoPoolError)(nil)
			check.Must(t, errors.As(err, &none) && len(none.Rejected) == 1, "got %v, want one rejection", err)
			check.Equal(t, none.Rejected[0], Rejection{Pool: "a", Reason: c.reason, Detail: c.detail}, "got")
		})
	}
}

func TestAffinitiesThatMatch(t *testing.T) {
	pool := v4("a").nodesWith("rack", "r1").namespacesWith("tier", "gold").podsWith("app", "web").attachments("x/y", "kube-system/macvlan")
	list := v4("b").nodes("n0", "n1").nodesWith("rack", "other").namespaces("shop").namespacesWith("tier", "other")
	runChoices(t, []choiceCase{
		{"all selectors", requestOf(inConfig([]string{"a"}, nil)), []*poolOf{pool}, "v4: a"},
		{"a list of names replaces the selector beside it", requestOf(inConfig([]string{"b"}, nil)), []*poolOf{list}, "v4: b"},
	})
}

func TestNoPoolErrorListsEveryCandidate(t *testing.T) {
	pools := objects(v4("a").disabled(), v4("b").nodes("n2"), v6("c"))
	for _, c := range []struct {
		rule    string
		request Request
		want    string
	}{
		{"in the source's order", requestOf(inConfig([]string{"b", "x", "a", "y*"}, nil)),
			"no IPv4 address for pod shop/web-0 interface eth0 from the pools of the CNI configuration: " +
				"pool b: its nodeName [n2] does not list node n1; pool x: it does not exist; pool a: it is disabled; " +
				"pool y*: no IPv4 pool matches this pattern"},
		{"also what is no pattern", requestOf(inConfig([]string{"a["}, nil)),
			"no IPv4 address for pod shop/web-0 interface eth0 from the pools of the CNI configuration: " +
				"pool a[: it is not a valid pattern"},
		{"of the annotation", requestOf(onPod("ipam.fenceline.io/ippool", `{"ipv4":["a"]}`)),
			"no IPv4 address for pod shop/web-0 interface eth0 from the pools of annotation ipam.fenceline.io/ippool of pod shop/web-0: " +
				"pool a: it is disabled"},
		{"where nobody names a pool", requestOf(),
			"no pool for pod shop/web-0 interface eth0: no annotation of the pod or its namespace and no CNI configuration names one, " +
				"and no pool has spec.default"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := ChoosePools(c.request, pools, poolset.Set{})
			check.That(t, err != nil && err.Error() == c.want, "got  %v\nwant %s", err, c.want)
		})
	}
}

func TestReservedAddressesAreNotHandedOut(t *testing.T) {
	c := check.Value(ChoosePools(requestOf(inConfig([]string{"a"}, nil)), objects(v4("a").ips("10.0.0.1-10.0.0.9")), setOf(t, "10.0.0.2-10.0.0.8", "fd00::/8")))(t)
	got := c.Families[0].Pools[0].Set
	check.That(t, got.Len() == 2 && !got.Contains(setOf(t, "10.0.0.5").At(0)), "got %v", got)
}

// large is a pool with as many entries as the API server accepts, in no order.
func large() *poolOf {
	var ips, excluded []string
	for i := range 4096 {
		at := i * 1031 % 4096
		ips = append(ips, fmt.Sprintf("10.0.%d.%d", at/128, 2*(at%128)))
		excluded = append(excluded, fmt.Sprintf("10.0.%d.%d", 64+at/128, 2*(at%128)))
	}
	p := pool("large", "10.0.0.0/16").ips(ips...)
	p.Spec.ExcludeIPs = excluded
	return p
}

func TestTheErrorAboutALargePoolIsShort(t *testing.T) {
	p := large()
	for i, entry := range p.Spec.IPs {
		p.Spec.IPs[i] = entry + "-10.0.0.0"
	}
	_, err := ChoosePools(requestOf(inConfig([]string{"large"}, nil)), objects(p), poolset.Set{})
	none := (*NoPoolError)(nil)
	check.Must(t, errors.As(err, &none), "%v", err)
	if text := err.Error(); len(text) > 1500 || !strings.Contains(text, "spec.ips[1]: range") || !strings.Contains(text, "more") {
		t.Errorf("%d bytes: %.1500s", len(text), text)
	}
	p = large()
	p.Spec.IPs[3000] = "10.0.0.9-10.0.0.8"
	_, err = ChoosePools(requestOf(inConfig([]string{"large"}, nil)), objects(p), poolset.Set{})
	check.That(t, strings.Contains(fmt.Sprint(err), "spec.ips[3000]: range 10.0.0.9-10.0.0.8 ends before it starts"), "%v", err)
}

// BenchmarkChooseLargePool is the part of an ADD that grows with the entries of its pool.
func BenchmarkChooseLargePool(b *testing.B) {
	pools := objects(large())
	request := requestOf(inConfig([]string{"large"}, nil))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ChoosePools(request, pools, poolset.Set{}); err != nil {
			b.Fatal(err)
		}
	}
}

// A sighting is a system call, and a full pool has thousands of addresses.
func TestTheKernelIsAskedOnlyAboutWhatNothingElseSpeaksAgainst(t *testing.T) {
	b := rotate(t, "10.0.0.1", "10.0.0.2-10.0.0.9")
	b.mark("10.0.0.2", "10.0.0.3")
	b.view.Taken = among("10.0.0.4")
	var asked []string
	b.view.Sighted = func(addr netip.Addr) bool {
		asked = append(asked, addr.String())
		return addr == netip.MustParseAddr("10.0.0.5")
	}
	b.want("10.0.0.6")
	check.List(t, asked, []string{"10.0.0.5", "10.0.0.6"}, "asked about")
}

// TestAPoolHandsOutNoAddressOfAnotherPool: red was created before blue was extended over it.
func TestAPoolHandsOutNoAddressOfAnotherPool(t *testing.T) {
	red := v4("red").ips("10.0.0.5-10.0.0.9")
	for name, blue := range map[string]*poolOf{
		"the controller has seen the edit":      v4("blue").ips("10.0.0.1-10.0.0.9").withheld("red", "10.0.0.5-10.0.0.9"),
		"the controller has not seen the edit":  v4("blue").ips("10.0.0.1-10.0.0.9").editedSince(),
		"the controller has seen a later edit":  v4("blue").ips("10.0.0.1-10.0.0.9").withheld("red", "10.0.0.5-10.0.0.9").editedSince(),
		"the controller has published too much": v4("blue").ips("10.0.0.1-10.0.0.4").withheld("red", "10.0.0.0/28").editedSince(),
	} {
		t.Run(name, func(t *testing.T) {
			pools := objects(blue, red)
			got := check.Value(ChoosePools(requestOf(inConfig([]string{"blue"}, nil)), pools, poolset.Set{}))(t)
			check.List(t, got.Families[0].Pools[0].Set.Entries(), []string{"10.0.0.1-10.0.0.4"}, "blue hands out")
			if c, closed := OnNode(&pools[0], pools, "n1", nil, poolset.Set{}); closed != nil || c.Set.Contains(netip.MustParseAddr("10.0.0.5")) {
				t.Errorf("on the node it hands out %v (%+v)", c.Set.Entries(), closed)
			}
		})
	}
	none := v4("blue").ips("10.0.0.5").withheld("red", "10.0.0.5")
	_, err := ChoosePools(requestOf(inConfig([]string{"blue"}, nil)), objects(none, red), poolset.Set{})
	check.Says(t, err, "pool blue: other pools hand out all its addresses")
	// Without a controller, the older pool hands out the common address.
	older, younger := v4("z").ips("10.0.0.5").editedSince(), v4("a").ips("10.0.0.5").editedSince()
	younger.CreationTimestamp.Time = time.Unix(1, 0)
	pools := objects(younger, older)
	_, err = ChoosePools(requestOf(inConfig([]string{"a"}, nil)), pools, poolset.Set{})
	check.Says(t, err, "pool a: other pools hand out all its addresses")
	got, err := ChoosePools(requestOf(inConfig([]string{"z"}, nil)), pools, poolset.Set{})
	check.That(t, err == nil && names(got) == "v4: z", "the older pool: %q, %v", names(got), err)
	asked := requestOf(inConfig([]string{"blue"}, nil))
	asked.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.5")}
	_, err = ChoosePools(asked, objects(v4("blue").withheld("red", "10.0.0.5-10.0.0.9"), red), poolset.Set{})
	check.Says(t, err, "another pool hands it out; the condition Overlapping of pool blue names that pool")
}

func (p *poolOf) withheld(of string, ips ...string) *poolOf {
	p.Status.Withheld = []v1alpha1.Withheld{{Pool: of, IPs: ips}}
	return p
}

func (p *poolOf) editedSince() *poolOf { p.Generation++; return p }

func TestRequestedAddresses(t *testing.T) {
	pools := objects(
		v4("a").ips("10.0.0.10-10.0.0.19").gateway("10.0.0.1").without("10.0.0.15"),
		v4("b").ips("10.0.0.15-10.0.0.29"),
		v6("c"),
		v4("off").disabled(),
		v4("unasked").ips("10.0.0.50-10.0.0.59").unasked(),
	)
	both := inConfig([]string{"a", "b"}, []string{"c"})
	runs := []struct {
		rule    string
		request Request
		want    string // the pools, or the error
	}{
		{"narrows its family to the pool that holds it", requestOf(both, asking("10.0.0.25")), "v4: b; v6: c"},
		{"the first pool that may hand it out serves", requestOf(both, asking("10.0.0.12")), "v4: a; v6: c"},
		{"a pool that excludes it does not stop the next", requestOf(both, asking("10.0.0.15")), "v4: b; v6: c"},
		{"one of each family", requestOf(both, asking("fd00::9", "10.0.0.12")), "v4: a; v6: c"},
		{"the gateway", requestOf(both, asking("10.0.0.1")),
			"requested address 10.0.0.1 for pod shop/web-0 interface eth0: it is the gateway of pool a"},
		{"the broadcast address", requestOf(both, asking("10.0.0.255")),
			"requested address 10.0.0.255 for pod shop/web-0 interface eth0: no host may have this address of the subnet 10.0.0.0/24"},
		{"excluded", requestOf(inConfig([]string{"a"}, nil), asking("10.0.0.15")),
			"requested address 10.0.0.15 for pod shop/web-0 interface eth0: it is excluded from pool a"},
		{"reserved", requestOf(both, asking("10.0.0.19")), "requested address 10.0.0.19 for pod shop/web-0 interface eth0: it is reserved"},
		{"inside the subnet but outside of ips", requestOf(both, asking("10.0.0.40")),
			"requested address 10.0.0.40 for pod shop/web-0 interface eth0: it is outside of the ips of pool a"},
		{"outside of every subnet", requestOf(both, asking("10.9.0.1")),
			"requested address 10.9.0.1 for pod shop/web-0 interface eth0: it is outside of the pools [a b]"},
		{"kept for the pod, though it is reserved now", requestOf(both, asking("10.0.0.19"), keeping("10.0.0.19", "a")), "v4: a; v6: c"},
		{"kept for the pod by a pool that is no longer named", requestOf(inConfig([]string{"a"}, nil), asking("10.0.0.19"), keeping("10.0.0.19", "b")), "v4: b"},
		{"kept for the pod by a pool that does not exist", requestOf(inConfig([]string{"a"}, nil), asking("10.0.0.19"), keeping("10.0.0.19", "z")),
			"requested address 10.0.0.19 for pod shop/web-0 interface eth0: it is reserved"},
		{"in a pool that is closed but for what it keeps", requestOf(inConfig([]string{"off"}, nil), asking("10.0.0.8"), keeping("10.0.0.7", "off")),
			"requested address 10.0.0.8 for pod shop/web-0 interface eth0: pool off: it is disabled"},
		{"in a pool that takes no requests", requestOf(inConfig([]string{"unasked"}, nil), asking("10.0.0.52")),
			"requested address 10.0.0.52 for pod shop/web-0 interface eth0: pool unasked takes no requests for an address (ipRequests: false)"},
		{"in the second pool of the subnet, which takes no requests", requestOf(inConfig([]string{"a", "unasked"}, nil), asking("10.0.0.52")),
			"requested address 10.0.0.52 for pod shop/web-0 interface eth0: pool unasked takes no requests for an address (ipRequests: false)"},
		{"kept for the pod in a pool that takes no requests", requestOf(inConfig([]string{"unasked"}, nil), asking("10.0.0.52"), keeping("10.0.0.52", "unasked")), "v4: unasked"},
		{"of a family without a pool", requestOf(inConfig([]string{"a"}, nil), asking("fd00::9")),
			"requested address fd00::9 for pod shop/web-0 interface eth0: no pool of its family is chosen"},
		{"two of one family", requestOf(both, asking("10.0.0.11", "10.0.0.12")),
			"requested address 10.0.0.12 for pod shop/web-0 interface eth0: 10.0.0.11 is requested as well, an interface gets one address of a family"},
	}
	for _, c := range runs {
		t.Run(c.rule, func(t *testing.T) {
			got, err := ChoosePools(c.request, pools, setOf(t, "10.0.0.19"))
			if err == nil {
				check.Equal(t, names(got), c.want, "got")
				for _, f := range got.Families {
					if f.Requested.IsValid() && (len(f.Pools) != 1 || !f.Pools[0].Set.Contains(f.Requested) && len(c.request.Kept) == 0) {
						t.Errorf("%s is not in %v", f.Requested, f.Pools)
					}
				}
				return
			}
			wrong := (*RequestedError)(nil)
			check.That(t, errors.As(err, &wrong) && err.Error() == c.want, "got  %v\nwant %s", err, c.want)
		})
	}
}
