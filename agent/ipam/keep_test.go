// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

func TestAKeptAddressStaysWhateverBecomesOfItsPool(t *testing.T) {
	kept := []func(*Request){inConfig([]string{"a"}, nil), keeping("10.0.0.200", "a")}
	for _, c := range []struct {
		rule   string
		pool   *poolOf
		closed Reason
	}{
		{"an open pool", v4("a"), ""},
		{"the address has left ips", v4("a").ips("10.0.0.9"), ""},
		{"the address is reserved, and others are not", v4("a").ips("10.0.0.200-10.0.0.201"), ""},
		{"every address is reserved", v4("a").ips("10.0.0.200"), AllReserved},
		{"every address is excluded", v4("a").ips("10.0.0.200").without("10.0.0.200"), AllExcluded},
		{"a disabled pool", v4("a").disabled(), Disabled},
		{"a pool that is being deleted", v4("a").deleting(), Deleting},
		{"a pool that is not Ready", v4("a").notReady("Overlapping", "b"), NotReady},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got, err := ChoosePools(requestOf(kept...), objects(c.pool), setOf(t, "10.0.0.200"))
			check.Must(t, err == nil && names(got) == "v4: a", "got %q, %v", names(got), err)
			candidate := got.Families[0].Pools[0]
			if c.closed == "" {
				check.That(t, candidate.Closed == nil && candidate.Set.Len() != 0, "closed as %v", candidate.Closed)
				return
			}
			check.That(t, candidate.Closed != nil && candidate.Closed.Reason == c.closed && candidate.Set.Len() == 0,
				"closed as %v with %d addresses, want %s and none", candidate.Closed, candidate.Set.Len(), c.closed)
			none := (*NoPoolError)(nil)
			_, err = got.Families[0].Open()
			check.That(t, errors.As(err, &none) && len(none.Rejected) == 1 && none.Rejected[0].Reason == c.closed, "new addresses: %v", err)
			// For anybody else it is no pool.
			_, err = ChoosePools(requestOf(kept[0]), objects(c.pool), setOf(t, "10.0.0.200"))
			check.That(t, errors.As(err, &none), "for others: %v", err)
		})
	}
	for rule, p := range map[string]*poolOf{
		"another node": v4("a").nodes("n2"), "another namespace": v4("a").namespaces("bank"), "other pods": v4("a").podsWith("app", "db"),
		"another attachment": v4("a").attachments("x/y"), "nobody, because it is invalid": v4("a").ips("x"),
	} {
		t.Run("but not in a pool for "+rule, func(t *testing.T) {
			got, err := ChoosePools(requestOf(kept...), objects(p), poolset.Set{})
			check.That(t, err != nil, "got %q", names(got))
		})
	}
}

func TestOpenLeavesClosedPoolsOut(t *testing.T) {
	got, err := ChoosePools(requestOf(inConfig([]string{"a", "b"}, nil), keeping("10.0.0.5", "a")), objects(v4("a").disabled(), v4("b")), poolset.Set{})
	check.Must(t, err == nil && names(got) == "v4: a b", "got %q, %v", names(got), err)
	open, err := got.Families[0].Open()
	check.That(t, err == nil && len(open.Pools) == 1 && open.Pools[0].Pool.Name == "b" && len(open.Rejected) == 1 && open.Rejected[0].Reason == Disabled,
		"got %v, %v", open, err)
	check.That(t, len(got.Families[0].Rejected) == 0, "the family itself was changed")
}

func TestStandingOfTheKeptAddresssPool(t *testing.T) {
	const ippool, ippools = "ipam.fenceline.io/ippool", "ipam.spidernet.io/ippools"
	type change = []func(*Request)
	for _, c := range []struct {
		rule     string
		change   change
		pool     *poolOf
		named    bool
		left     string
		rejected Reason
	}{
		{"the pod names it", change{onPod(ippool, `{"ipv4":["b","a"]}`)}, v4("a"), true, "", ""},
		{"the pod names it by a pattern", change{onPod(ippool, `{"ipv4":["?"]}`)}, v4("a"), true, "", ""},
		{"the pod names it, and it is for another node", change{onPod(ippool, `{"ipv4":["a","b"]}`)}, v4("a").nodes("n2"), true, "", NodeName},
		{"the pod names another", change{onPod(ippool, `{"ipv4":["b"]}`)}, v4("a"), false, "annotation ipam.fenceline.io/ippool of pod shop/web-0", ""},
		{"the pod names another for the interface", change{onPod(ippools, `[{"interface":"eth0","ipv4":["b"]}]`)}, v4("a"), false, "annotation ipam.spidernet.io/ippools of pod shop/web-0", ""},
		{"the pod names another, and an address of it", change{onPod(ippool, `{"ipv4":["b"]}`), asking("10.0.0.7")}, v4("a"), false, "annotation ipam.fenceline.io/ippool of pod shop/web-0", ""},
		{"the pod wishes for it", change{onPod("ipam.fenceline.io/ips", "10.0.0.9, 10.0.0.2")}, v4("a"), false, "", ""},
		{"the namespace names another", change{onNamespace("ipam.fenceline.io/default-ipv4-ippool", `["b"]`)}, v4("a"), false, "", ""},
		{"the configuration names another", change{inConfig([]string{"b"}, nil)}, v4("a"), false, "", ""},
		{"the same, and the interface is on another parent", change{inConfig([]string{"b"}, nil), onParent("eth2")}, v4("a"), false, "the CNI configuration, and the parent is eth2, no longer eth1", ""},
		{"the same, and the parent has another name now", change{inConfig([]string{"b"}, nil), onParent("eth2", "eth1")}, v4("a"), false, "", ""},
		{"the configuration names it, and the interface is on another parent", change{inConfig([]string{"a"}, nil), onParent("eth2")}, v4("a"), true, "", ""},
		{"nothing names any pool, and the interface is on another parent", change{onParent("eth2")}, v4("a"), false, "", ""},
		{"nothing names any pool", nil, v4("a"), false, "", ""},
		{"it is disabled", nil, v4("a").disabled(), false, "", ""},
		{"it is being deleted", nil, v4("a").deleting(), false, "", ""},
		{"it is not Ready", nil, v4("a").notReady("Overlapping", "b"), false, "", ""},
		{"it is for another node", nil, v4("a").nodes("n2"), false, "", NodeName},
		{"it is for another namespace", nil, v4("a").namespaces("bank"), false, "", NamespaceName},
		{"it is for other pods", nil, v4("a").podsWith("app", "db"), false, "", PodAffinity},
		{"it is for another attachment", nil, v4("a").attachments("x/y"), false, "", MultusName},
		{"it is invalid", nil, v4("a").ips("x"), false, "", Invalid},
		{"it does not exist", nil, v4("c"), false, "", NotFound},
	} {
		t.Run(c.rule, func(t *testing.T) {
			r := requestOf(append(c.change, keeping("10.0.0.2", "a"))...)
			r.Kept[0].Parent = "eth1"
			all, err := Standings(r, objects(c.pool, v4("b").ips("10.0.0.7")))
			check.Must(t, err == nil && len(all) == 1, "got %v, %v", all, err)
			got, reason := all[0], Reason("")
			if got.Rejected != nil {
				reason = got.Rejected.Reason
			}
			check.That(t, got.Named == c.named && got.Left == c.left && reason == c.rejected,
				"got %+v (%s), want named %t, left %q, rejected %q", got, reason, c.named, c.left, c.rejected)
		})
	}
}

func TestAKeptAddressIsLeftForAnotherOneOfTheAnnotation(t *testing.T) {
	const by = "annotation ipam.fenceline.io/ips of pod shop/web-0 names another address"
	for value, want := range map[string]string{
		"10.0.0.2": "", "10.0.0.2, 10.0.0.3": "", "10.0.0.3": by, "fd00::2": "", "10.0.0.3, fd00::2": by,
		`[{"interface": "net1", "ips": ["10.0.0.3"]}]`: "",
	} {
		r := requestOf(onPod("ipam.fenceline.io/ips", value), keeping("10.0.0.2", "a"))
		delete(r.Pod.Annotations, "v1.multus-cni.io/default-network")
		all := check.Value(Standings(r, objects(v4("a"))))(t)
		check.Equal(t, all[0].Unwished, want, "with %s, it is left for", value)
	}
}

func TestAKeptAddressStaysWhicheverPoolsAreNamedNow(t *testing.T) {
	const v4Only, both = "v4: a", "v4: a; v6: s"
	for _, c := range []struct {
		rule   string
		change []func(*Request)
		pools  []*poolOf
		want   string
		err    string
	}{
		{"spec.default is on another pool", nil, []*poolOf{v4("a"), v4("b").asDefault()}, "v4: b a", ""},
		{"spec.default is on no pool", nil, []*poolOf{v4("a"), v4("b")}, v4Only, ""},
		{"spec.default is on a pool for other nodes", nil, []*poolOf{v4("a"), v4("b").asDefault().nodes("n2")}, v4Only, ""},
		{"spec.default is on a pool of the other family", nil, []*poolOf{v4("a"), v6("s").asDefault()}, both, ""},
		{"the namespace names another", []func(*Request){onNamespace("ipam.fenceline.io/default-ipv4-ippool", `["b"]`)}, []*poolOf{v4("a"), v4("b")}, "v4: b a", ""},
		{"the configuration names another", []func(*Request){inConfig([]string{"b"}, nil)}, []*poolOf{v4("a"), v4("b")}, "v4: b a", ""},
		{"it is disabled, too", nil, []*poolOf{v4("a").disabled(), v4("b").asDefault()}, "v4: b a", ""},
		{"but not when it does not serve the node", nil, []*poolOf{v4("a").nodes("n2"), v4("b").asDefault()}, "v4: b", ""},
		{"but not when it does not exist", nil, []*poolOf{v4("b").asDefault()}, "v4: b", ""},
		{"but not when the pod itself names another", []func(*Request){onPod("ipam.fenceline.io/ippool", `{"ipv4":["b"]}`)}, []*poolOf{v4("a"), v4("b")}, "v4: b", ""},
		{"nothing is left that serves", nil, []*poolOf{v4("a").nodes("n2"), v4("b")}, "", "no pool has spec.default"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got, err := ChoosePools(requestOf(append(c.change, keeping("10.0.0.2", "a"))...), objects(c.pools...), poolset.Set{})
			if c.err != "" {
				check.That(t, err != nil && strings.Contains(err.Error(), c.err), "got %q, %v", names(got), err)
				return
			}
			check.Must(t, err == nil && names(got) == c.want, "got %q, %v, want %q", names(got), err, c.want)
			for _, p := range got.Families[0].Pools {
				check.That(t, p.Pool.Name != "a" || p.Closed != nil && p.Set.Len() == 0, "pool a hands out new addresses: %+v", p)
			}
		})
	}
}
