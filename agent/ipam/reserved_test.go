// SPDX-License-Identifier: Apache-2.0

package ipam

import (
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
		{"of another network", reserving("r", "lab", web, "10.0.0.12"), a(), list{ofSet}, "10.0.0.10-10.0.0.11 10.0.0.13"},
		{"in no pool of the interface", reserving("r", "", web, "10.9.9.9"), a(), list{ofSet}, "10.0.0.10-10.0.0.13"},
		{"the annotation chooses it", reserving("r", "", web, "10.0.0.12"), a().unasked(), list{ofSet, onPod("ipam.fenceline.io/ips", "10.0.0.12")}, "10.0.0.12"},
		{"the annotation chooses another", reserving("r", "", web, "10.0.0.12"), a(), list{ofSet, onPod("ipam.fenceline.io/ips", "10.0.0.11")}, "10.0.0.11"},
		{"the annotation of another pod chooses it", reserving("r", "", web, "10.0.0.12"), a(), list{onPod("ipam.fenceline.io/ips", "10.0.0.12")}, "it is reserved"},
	} {
		t.Run(row.rule, func(t *testing.T) {
			r := requestOf(append(list{inConfig([]string{"a"}, nil)}, row.change...)...)
			r.Reservations = []v1alpha1.ReservedIP{row.kept}
			got, err := ChoosePools(r, objects(row.pool), poolset.ReservedSet(r.Reservations))
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
	r.Reservations = []v1alpha1.ReservedIP{reserving("r", "", v1alpha1.ReservedFor{StatefulSet: "web"}, "10.0.0.12")}
	all := check.Value(Standings(r, objects(v4("a"))))(t)
	check.Equal(t, all[0].Unwished, "ReservedIP r", "it is left for")
	r.Reservations[0].Spec.IPs = []string{"10.0.0.10"}
	all = check.Value(Standings(r, objects(v4("a"))))(t)
	check.Equal(t, all[0].Unwished, "", "the reserved one is left for")
}
