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
	for _, name := range []string{"10.2.0.7", "lab.10.2.0.7", "lab.10.2.0.8", "lab.10.2.0.9", "storage.10.2.0.9"} {
		_, addr, err := v1alpha1.ParseLeaseName(name)
		check.OK(t, err)
		objects = append(objects, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPLeaseSpec{Address: addr.String()}})
	}
	c := clusterOf(t, "", objects...)
	for asked, want := range map[string]string{
		"10.2.0.7":         "10.2.0.7", // this is the name of a lease
		"lab.10.2.0.7":     "lab.10.2.0.7",
		"10.2.0.8":         "lab.10.2.0.8",
		"storage.10.2.0.9": "storage.10.2.0.9",
	} {
		lease, err := leaseOf(t.Context(), c, asked)
		if err != nil {
			t.Errorf("%s: %v", asked, err)
			continue
		}
		check.Equal(t, lease.Name, want, "the lease of %s:", asked)
	}
	for asked, want := range map[string]string{
		"10.2.0.9":         "10.2.0.9 has several leases: name one of lab.10.2.0.9, storage.10.2.0.9",
		"10.2.0.6":         "10.2.0.6 has no lease",
		"storage.10.2.0.8": "storage.10.2.0.8 has no lease",
	} {
		_, err := leaseOf(t.Context(), c, asked)
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
