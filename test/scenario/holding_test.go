// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"testing"

	"github.com/fenceline/fenceline/apis/poolset"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestPoolsOfApplicationsAreKeptApart(t *testing.T) {
	set := func(entries ...string) poolset.Set {
		s, err := poolset.Parse(entries)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	leased := v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: "10.78.3.12"}}
	for _, tc := range []struct {
		name         string
		all, offered poolset.Set
		problem      string
	}{
		{"a pool with the addresses of its leases", set("10.78.3.12-10.78.3.14"), set("10.78.3.12"), ""},
		{"a common address", set("10.78.3.11-10.78.3.14"), set("10.78.3.12"), "in common"},
		{"a common address that is withdrawn", set("10.78.3.10", "10.78.3.12"), set("10.78.3.12"), "in common"},
		{"a withdrawn address with a lease", set("10.78.3.12-10.78.3.14"), set("10.78.3.13"), "with the lease"},
		{"a lease of an address that the pool does not have", set("10.78.3.13"), set("10.78.3.13"), "with the lease"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			expectProblem(t, keepApart(map[string]holding{
				"DaemonSet":  {name: "other", all: set("10.78.3.10-10.78.3.11"), offered: set("10.78.3.11")},
				"Deployment": {name: "web", all: tc.all, offered: tc.offered, leases: []v1alpha1.IPLease{leased}},
			}), tc.problem)
		})
	}
}
