// SPDX-License-Identifier: Apache-2.0

//go:build api

package lease

import (
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestComingFreeCountsOnePoolsWarmAndQuarantinedLeases(t *testing.T) {
	w := newWorld(t)
	for addr, lease := range map[string]struct {
		pool  string
		state v1alpha1.LeaseState
	}{
		"10.0.20.1": {"full", v1alpha1.StateBound},
		"10.0.20.2": {"full", v1alpha1.StateWarm},
		"10.0.20.3": {"full", v1alpha1.StateQuarantined},
		"10.0.20.4": {"full", v1alpha1.StateRetained},
		"10.0.20.5": {"other", v1alpha1.StateWarm},
	} {
		r := wish(addr, "c1")
		r.Pool, r.Holder.OwnerKind = lease.pool, "ReplicaSet"
		l := check.Value(w.n1.Create(t.Context(), r))(t)
		w.edit(t, l.Name, func(l *v1alpha1.IPLease) {
			l.Spec.State = lease.state
			switch lease.state {
			case v1alpha1.StateWarm:
				l.Spec.Holder = nil
			case v1alpha1.StateQuarantined:
				l.Spec.Reason = v1alpha1.ReasonPodGone
			}
		})
	}
	for pool, want := range map[string]int{"full": 2, "other": 1, "empty": 0} {
		got, err := w.n2.ComingFree(t.Context(), pool)
		check.That(t, err == nil && got == want, "pool %s: %d, %v, want %d", pool, got, err, want)
	}
}
