// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestOneHostThatAnswersForManyAddressesIsNamed(t *testing.T) {
	const a, b = "02:bd:00:00:00:01", "02:bd:00:00:00:02"
	met := func(state v1alpha1.LeaseState, reason v1alpha1.LeaseReason, macs ...string) (leases []v1alpha1.IPLease) {
		for i, mac := range macs {
			l := lease(fmt.Sprintf("10.6.0.%d", i+1), state)
			l.Spec.Reason, l.Spec.Conflict = reason, &v1alpha1.Conflict{MAC: mac}
			leases = append(leases, l)
		}
		return leases
	}
	conflict := func(macs ...string) []v1alpha1.IPLease {
		return met(v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, macs...)
	}
	for _, row := range []struct {
		name   string
		leases []v1alpha1.IPLease
		mode   v1alpha1.ConflictMode
		ignore []string
		want   string // the MACs in the message; empty: False
	}{
		{"no conflict", nil, "", nil, ""},
		{"two addresses of one host", conflict(a, a), "", nil, ""},
		{"three hosts of one address each", conflict(a, b, "02:bd:00:00:00:03"), "", nil, ""},
		{"three addresses of one host", conflict(a, a, a), "", nil, a},
		{"two such hosts, in the order of their MACs", conflict(b, b, a, a, b, a), "", nil, a + ", " + b},
		{"a host that the pool ignores", conflict(a, a, a, b, b, b), "", []string{a}, b},
		{"another reason than the conflict", met(v1alpha1.StateQuarantined, v1alpha1.ReasonPodGone, a, a, a), "", nil, ""},
		{"pods that defend their addresses", met(v1alpha1.StateBound, "", a, a, a), "", nil, ""},
		{"pods of a pool that only observes", met(v1alpha1.StateBound, "", a, a, a), v1alpha1.ModeObserve, nil, a},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := subnetPool("blue", "10.6.0.0/28", 1)
			pool.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: row.mode, IgnoreMACs: row.ignore}
			r := NewReport(Facts{Pool: &pool, Leases: row.leases, Now: noon()})
			c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAnsweredByOne)
			want := "False/None"
			if row.want != "" {
				want = "True/ManyConflicts"
			}
			if got := fmt.Sprintf("%s/%s", c.Status, c.Reason); got != want || !strings.Contains(c.Message, row.want) {
				t.Errorf("%s: %s", got, c.Message)
			}
			if (row.want != "") != (r.HostsOfMany > 0) {
				t.Errorf("%d hosts", r.HostsOfMany)
			}
		})
	}
}
