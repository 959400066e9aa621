// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/apis/poolset"
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
			if err != nil || names(got) != "v4: a" {
				t.Fatalf("got %q, %v", names(got), err)
			}
			candidate := got.Families[0].Pools[0]
			if c.closed == "" {
				if candidate.Closed != nil || candidate.Set.Len() == 0 {
					t.Errorf("closed as %v", candidate.Closed)
				}
				return
			}
			if candidate.Closed == nil || candidate.Closed.Reason != c.closed || candidate.Set.Len() != 0 {
				t.Errorf("closed as %v with %d addresses, want %s and none", candidate.Closed, candidate.Set.Len(), c.closed)
			}
			none := (*NoPoolError)(nil)
			if _, err := got.Families[0].Open(); !errors.As(err, &none) || len(none.Rejected) != 1 || none.Rejected[0].Reason != c.closed {
				t.Errorf("new addresses: %v", err)
			}
			// For anybody else it is no pool.
			if _, err := ChoosePools(requestOf(kept[0]), objects(c.pool), setOf(t, "10.0.0.200")); !errors.As(err, &none) {
				t.Errorf("for others: %v", err)
			}
		})
	}
	for rule, p := range map[string]*poolOf{
		"another node": v4("a").nodes("n2"), "another namespace": v4("a").namespaces("bank"), "other pods": v4("a").podsWith("app", "db"),
		"another attachment": v4("a").attachments("x/y"), "nobody, because it is invalid": v4("a").ips("x"),
	} {
		t.Run("but not in a pool for "+rule, func(t *testing.T) {
			if got, err := ChoosePools(requestOf(kept...), objects(p), poolset.Set{}); err == nil {
				t.Errorf("got %q", names(got))
			}
		})
	}
}

func TestOpenLeavesClosedPoolsOut(t *testing.T) {
	got, err := ChoosePools(requestOf(inConfig([]string{"a", "b"}, nil), keeping("10.0.0.5", "a")), objects(v4("a").disabled(), v4("b")), poolset.Set{})
	if err != nil || names(got) != "v4: a b" {
		t.Fatalf("got %q, %v", names(got), err)
	}
	open, err := got.Families[0].Open()
	if err != nil || len(open.Pools) != 1 || open.Pools[0].Pool.Name != "b" || len(open.Rejected) != 1 || open.Rejected[0].Reason != Disabled {
		t.Errorf("got %v, %v", open, err)
	}
	if len(got.Families[0].Rejected) != 0 {
		t.Error("the family itself was changed")
	}
}

func TestWhoHasLeftAPool(t *testing.T) {
	const ippool, ippools = "ipam.fenceline.io/ippool", "ipam.spidernet.io/ippools"
	for _, c := range []struct {
		rule   string
		change []func(*Request)
		want   bool
	}{
		{"the pod names another", []func(*Request){onPod(ippool, `{"ipv4":["b"]}`)}, true},
		{"the pod names another for the interface", []func(*Request){onPod(ippools, `[{"interface":"eth0","ipv4":["b"]}]`)}, true},
		{"the pod names another, and an address of it", []func(*Request){onPod(ippool, `{"ipv4":["b"]}`), asking("10.0.0.7")}, true},
		{"the pod names it as a backup", []func(*Request){onPod(ippool, `{"ipv4":["b","a"]}`)}, false},
		{"the pod names it beside the one whose address it asks for", []func(*Request){onPod(ippool, `{"ipv4":["a","b"]}`), asking("10.0.0.7")}, false},
		{"the pod names it by a pattern", []func(*Request){onPod(ippool, `{"ipv4":["?"]}`)}, false},
		{"the pod names it, and it is ruled out", []func(*Request){onPod(ippool, `{"ipv4":["elsewhere","b"]}`)}, false},
		{"the namespace names another", []func(*Request){onNamespace("ipam.fenceline.io/default-ipv4-ippool", `["b"]`)}, false},
		{"the configuration names another", []func(*Request){inConfig([]string{"b"}, nil)}, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			pools := objects(v4("a").ips("10.0.0.2"), v4("b").ips("10.0.0.7"), v4("elsewhere").nodes("n2"))
			got, err := ChoosePools(requestOf(c.change...), pools, poolset.Set{})
			if err != nil {
				t.Fatal(err)
			}
			f, pool := got.Families[0], "a"
			if strings.Contains(c.rule, "ruled out") {
				pool = "elsewhere"
			}
			if left := f.Left(pool); left != c.want {
				t.Errorf("left pool %s: %t", pool, left)
			}
		})
	}
}
