// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestALeaseToFreeIsFoundOnEachNetwork(t *testing.T) {
	var objects []client.Object
	for _, network := range []string{"", "lab", "storage"} {
		objects = append(objects, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p" + network},
			Spec: v1alpha1.IPPoolSpec{Network: network, Subnet: "10.2.0.0/24"}})
	}
	for _, name := range []string{"10.2.0.7", "lab.10.2.0.7", "lab.10.2.0.8", "lab.10.2.0.9", "storage.10.2.0.9", "10.9.0.9"} {
		_, addr, err := v1alpha1.ParseLeaseName(name)
		check.OK(t, err)
		objects = append(objects, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPLeaseSpec{Address: addr.String()}})
	}
	c := clusterOf(t, "", objects...)
	for asked, want := range map[[2]string]string{
		{"10.2.0.7", ""}:          "10.2.0.7",
		{"10.2.0.7", "lab"}:       "lab.10.2.0.7",
		{"lab.10.2.0.7", "*"}:     "lab.10.2.0.7",
		{"10.2.0.8", "*"}:         "lab.10.2.0.8",
		{"10.9.0.9", "*"}:         "10.9.0.9", // no pool has it any more
		{"storage.10.2.0.9", "*"}: "storage.10.2.0.9",
	} {
		q, err := parseQuery(asked[0], asked[1])
		check.OK(t, err)
		lease, err := leaseOf(t.Context(), c, q)
		if err != nil {
			t.Errorf("%s: %v", asked, err)
			continue
		}
		check.Equal(t, lease.Name, want, "the lease of %s:", asked)
	}
	for asked, want := range map[[2]string]string{
		{"10.2.0.7", "*"}:           `10.2.0.7 has leases on several networks: choose one of ["" "lab"] with --network`,
		{"10.2.0.9", "*"}:           `10.2.0.9 has leases on several networks: choose one of ["lab" "storage"] with --network`,
		{"10.2.0.6", "*"}:           "10.2.0.6 has no lease",
		{"10.2.0.8", ""}:            "10.2.0.8 has no lease",
		{"storage.10.2.0.8", "*"}:   "10.2.0.8 on network storage has no lease",
		{"storage.10.2.0.8", "lab"}: `storage.10.2.0.8 is on network storage, and not on "lab"`,
		{"10.2.0", "*"}:             `"10.2.0" is neither an address nor the name of a lease`,
	} {
		q, err := parseQuery(asked[0], asked[1])
		if err == nil {
			_, err = leaseOf(t.Context(), c, q)
		}
		check.Says(t, err, want)
	}
}

func TestTheQuestionOfFreeNamesTheNetwork(t *testing.T) {
	for network, want := range map[string]string{"": "the lease of fd00::7 (", "lab": "the lease of fd00::7 on network lab ("} {
		var out bytes.Buffer
		s := &session{}
		s.In, s.Out = strings.NewReader("y\n"), &out
		name := v1alpha1.LeaseName(network, netip.MustParseAddr("fd00::7"))
		check.OK(t, s.confirm(&v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPLeaseSpec{Address: "fd00::7"}}))
		check.Says(t, out.String(), want)
	}
}
