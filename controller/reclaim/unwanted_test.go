// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// TestAConflictEndsOnlyWhenBothViewsAgree is rule R11 for the end of a quarantine.
func TestAConflictEndsOnlyWhenBothViewsAgree(t *testing.T) {
	conflict := leaseObject(quarantinedFor(v1alpha1.ReasonConflict, noon()), withoutHolder)
	reservation := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "printers"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.6.0.10"}}}
	excluded := poolObject()
	excluded.Spec.ExcludeIPs = []string{"10.6.0.10"}
	other := poolObject()
	other.Name = "green"
	for _, row := range []struct {
		name         string
		cached, live []client.Object
		ends         bool
	}{
		{"the pool is gone", objects(), objects(), true},
		{"the pool is missing in the cache only", objects(), objects(poolObject()), false},
		{"the pool is there in the cache only", objects(poolObject()), objects(), false},
		{"the address is excluded", objects(excluded), objects(excluded), true},
		{"the address is excluded in the cache only", objects(excluded), objects(poolObject()), false},
		{"the address is reserved", objects(poolObject(), reservation), objects(poolObject(), reservation), true},
		{"the address is reserved in the cache only", objects(poolObject(), reservation), objects(poolObject()), false},
		{"another pool has the address", objects(excluded, other), objects(excluded, other), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			world := objects(conflict, agentOn("n1"), agentOn("n2"))
			b := between(t, objects(world, row.cached), objects(world, row.live))
			if _, err := b.look(); err != nil {
				t.Fatal(err)
			}
			if ended := b.lease() == nil; ended != row.ends {
				t.Errorf("the lease has ended: %v, want %v", ended, row.ends)
			}
		})
	}
}
