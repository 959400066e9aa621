// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestComesFree(t *testing.T) {
	deployment := func(s *spec) { s.Holder.OwnerKind = "ReplicaSet" }
	for rule, test := range map[string]struct {
		of   spec
		want bool
	}{
		"a Bound lease lasts as long as its pod":                    {with(mine, deployment), false},
		"a Retained lease lasts by policy":                          {with(mine, deployment, state(v1alpha1.StateRetained)), false},
		"a Warm lease is given up":                                  {with(mine, noHolder, state(v1alpha1.StateWarm)), true},
		"a Quarantined lease is verified":                           {with(quarantined, deployment), true},
		"a Quarantined lease of a StatefulSet pod becomes Retained": {quarantined, false},
		"a Quarantined lease with a retention becomes Retained": {with(quarantined, deployment, func(s *spec) {
			s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever}
		}), false},
		"a pod may get the address back after the boot of its node": {with(quarantined, deployment, func(s *spec) {
			s.Reason = v1alpha1.ReasonNodeRestarted
		}), false},
		"another speaker may stay": {with(quarantined, noHolder, func(s *spec) { s.Reason = v1alpha1.ReasonConflict }), false},
	} {
		t.Run(rule, func(t *testing.T) {
			if got := comesFree(&test.of); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func state(to v1alpha1.LeaseState) func(*spec) { return func(s *spec) { s.State = to } }

func noHolder(s *spec) { s.Holder = nil }
