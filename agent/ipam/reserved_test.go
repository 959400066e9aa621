// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// reserving keeps addresses of a network for somebody of namespace shop.
func reserving(name, network string, whom v1alpha1.ReservedFor, ips ...string) v1alpha1.ReservedIP {
	whom.Namespace = "shop"
	return v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ReservedIPSpec{IPs: ips, Network: network, For: &whom}}
}

// ofSet makes the pod web-0 that of the StatefulSet web.
func ofSet(r *Request) {
	r.Pod.OwnerKind, r.Pod.OwnerName, r.Pod.Ordinal = "StatefulSet", "web", new(int64)
}

// next makes the pod that of the second ordinal.
func next(r *Request) {
	ordinal(1)(r)
	r.Pod.Name = "web-1"
}

// second makes it the second interface of the pod, whose first one has an address.
func second(addr, pool string) func(*Request) {
	return func(r *Request) {
		r.Earlier = []Interface{{Name: "eth0", Addresses: []Kept{{Addr: netip.MustParseAddr(addr), Pool: pool}}}}
		r.Interface = "net1"
	}
}

func TestAddressesThatAreKeptForThePod(t *testing.T) {
	web := v1alpha1.ReservedFor{StatefulSet: "web"}
	a := func() *poolOf { return v4("a").ips("10.0.0.10-10.0.0.13") }
	type list = []func(*Request)
	for _, row := range []struct {
		rule   string
		kept   v1alpha1.ReservedIP
		pool   *poolOf
		change list
		// want are the addresses of the pools, or a part of the error.
		want string
	}{
		{"a pod's own", reserving("r", "", v1alpha1.ReservedFor{Pod: "web-0"}, "10.0.0.12"), a(), nil, "10.0.0.12"},
		{"an ordinal's own", reserving("r", "", web, "10.0.0.12-10.0.0.13"), a(), list{ofSet}, "10.0.0.12"},
		{"nobody else gets it", reserving("r", "", web, "10.0.0.12-10.0.0.13"), a(), nil, "10.0.0.10-10.0.0.11"},
		{"one of two", reserving("r", "", v1alpha1.ReservedFor{Pod: "web-0"}, "10.0.0.12-10.0.0.13"), a(), nil, "10.0.0.12-10.0.0.13"},
		{"its pool takes no requests", reserving("r", "", web, "10.0.0.12"), a().unasked(), list{ofSet}, "10.0.0.12"},
		{"all of the pool is reserved", reserving("r", "", web, "10.0.0.10-10.0.0.13"), a(), list{ofSet}, "10.0.0.10"},
		{"the pods of the namespace get theirs first", reserving("r", "", v1alpha1.ReservedFor{}, "10.0.0.12"), a(), nil, "10.0.0.12 | 10.0.0.10-10.0.0.11 10.0.0.13"},
		{"all addresses are the namespace's", reserving("r", "", v1alpha1.ReservedFor{}, "10.0.0.0/24"), a(), nil, "10.0.0.10-10.0.0.13"},
		{"its ordinal is beyond the list of no address of the family", reserving("r", "", v1alpha1.ReservedFor{StatefulSet: "web"}, "fd00::1"), a(), list{ofSet}, "10.0.0.10-10.0.0.13"},
		{"its ordinal is beyond the list", reserving("r", "", web, "10.0.0.12"), a(), list{ofSet, next}, "interface eth0: ReservedIP r has no address for the ordinal of pod shop/web-1: add addresses to its ips, or scale the StatefulSet down"},
		{"its ordinal is beyond the list, in another network", reserving("r", "lab", web, "10.0.0.12"), a(), list{ofSet, next}, "10.0.0.10-10.0.0.11 10.0.0.13"},
		{"its ordinal is beyond the list, and it keeps an address", reserving("r", "", web, "10.0.0.12"), a(), list{ofSet, next, keeping("10.0.0.11", "a")}, "10.0.0.10-10.0.0.11 10.0.0.13"},
		{"an earlier interface has it", reserving("r", "", web, "10.0.0.12"), a(), list{ofSet, second("10.0.0.12", "a")}, "10.0.0.10-10.0.0.13"},
		{"an earlier interface has it in another pool", reserving("r", "", web, "10.0.0.12"), a(), list{ofSet, second("10.0.0.12", "b")}, "10.0.0.12"},
		{"of another network", reserving("r", "lab", web, "10.0.0.12"), a(), list{ofSet}, "10.0.0.10-10.0.0.11 10.0.0.13"},
		{"in no pool of the interface", reserving("r", "", web, "10.9.9.9"), a(), list{ofSet}, "10.0.0.10-10.0.0.13"},
		{"the annotation chooses it", reserving("r", "", web, "10.0.0.12"), a().unasked(), list{ofSet, onPod("ipam.fenceline.io/ips", "10.0.0.12")}, "10.0.0.12"},
		{"the annotation chooses another", reserving("r", "", web, "10.0.0.12"), a(), list{ofSet, onPod("ipam.fenceline.io/ips", "10.0.0.11")}, "10.0.0.11"},
		{"the annotation of another pod chooses it", reserving("r", "", web, "10.0.0.12"), a(), list{onPod("ipam.fenceline.io/ips", "10.0.0.12")}, "it is reserved"},
	} {
		t.Run(row.rule, func(t *testing.T) {
			r := requestOf(append(list{inConfig([]string{"a"}, nil)}, row.change...)...)
			r.Reservations = poolset.Listed{row.kept}
			got, err := ChoosePools(r, objects(row.pool), r.Reservations.Set())
			if err != nil {
				check.That(t, strings.Contains(err.Error(), row.want), "got %v, want %s", err, row.want)
				return
			}
			var sets []string
			for _, p := range got.Families[0].Pools {
				sets = append(sets, strings.Join(p.Set.Entries(), " "))
			}
			check.Equal(t, strings.Join(sets, " | "), row.want, "the pod may get")
		})
	}
}

func TestAKeptAddressIsLeftForTheReservedOne(t *testing.T) {
	r := requestOf(ofSet, inConfig([]string{"a"}, nil), keeping("10.0.0.10", "a"))
	r.Reservations = poolset.Listed{reserving("r", "", v1alpha1.ReservedFor{StatefulSet: "web"}, "10.0.0.12")}
	all := check.Value(Standings(r, objects(v4("a"))))(t)
	check.Equal(t, all[0].Unwished, "ReservedIP r names another address", "it is left for")
	r.Reservations.(poolset.Listed)[0].Spec.IPs = []string{"10.0.0.10"}
	all = check.Value(Standings(r, objects(v4("a"))))(t)
	check.Equal(t, all[0].Unwished, "", "the reserved one is left for")
	r.Reservations.(poolset.Listed)[0].Spec.For.StatefulSet = "db"
	all = check.Value(Standings(r, objects(v4("a"))))(t)
	check.Equal(t, all[0].Unwished, "ReservedIP r keeps it for StatefulSet shop/db", "that of another is left, since")
	r.Reservations.(poolset.Listed)[0].Spec.Network = "lab"
	all = check.Value(Standings(r, objects(v4("a"))))(t)
	check.Equal(t, all[0].Unwished, "", "that of another network is left for")
}

// A migration keeps the address of the guest, although its pod wishes for another one.
func TestAnAddressThatIsKeptComesBeforeAWish(t *testing.T) {
	r := requestOf(inConfig([]string{"a"}, nil), onPod("ipam.fenceline.io/ips", "10.0.0.12"), keeping("10.0.0.10", "a"))
	got := check.Value(ChoosePools(r, objects(v4("a")), poolset.Set{}))(t)
	check.That(t, got.Families[0].Wish == nil, "the wish is %v", got.Families[0].Wish)
	r.Kept = nil
	got = check.Value(ChoosePools(r, objects(v4("a")), poolset.Set{}))(t)
	check.That(t, got.Families[0].Requested.String() == "10.0.0.12", "without it, %v is requested", got.Families[0].Requested)
}

// The wait is told of the addresses, since nobody else is told of one that is kept.
func TestThePodsOfANamespaceWaitForItsAddresses(t *testing.T) {
	for pool, want := range map[string]string{"10.0.0.10-10.0.0.13": "[10.0.0.12]", "10.0.0.12": "[10.0.0.12]"} {
		r := requestOf(inConfig([]string{"a"}, nil))
		r.Reservations = poolset.Listed{reserving("r", "", v1alpha1.ReservedFor{}, "10.0.0.12")}
		got := check.Value(ChoosePools(r, objects(v4("a").ips(pool)), r.Reservations.Set()))(t)
		check.Equal(t, fmt.Sprint(got.Families[0].Pools[0].Only), want, "of a pool of %s, it wants", pool)
	}
}
