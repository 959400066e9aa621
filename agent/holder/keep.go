// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"fmt"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// keptLeases returns the leases that already belong to this pod: the leases of its name or virtual
// machine if these come back, or of an older sandbox of the same pod.
func (a *adding) keptLeases(ctx context.Context) ([]v1alpha1.IPLease, error) {
	if !owner.KeepsName(&a.who) && !a.hasOlderSandbox(ctx) {
		return nil, nil
	}
	all, err := a.h.Leases.OfIdentity(ctx, &a.who)
	if err != nil {
		return nil, fmt.Errorf("look for leases of %s: %w", owner.Identity(&a.who), err)
	}
	var kept []v1alpha1.IPLease
	for _, l := range all {
		holder := l.Spec.Holder
		if holder == nil || holder.Interface != a.who.Interface {
			continue
		}
		if owner.KeepsName(&a.who) && owner.Same(holder, &a.who) || holder.PodUID == a.who.PodUID {
			kept = append(kept, l)
		}
	}
	return kept, nil
}

// hasOlderSandbox reports whether the interface may have had an address in another sandbox of the
// same pod. Only then do leases have to be searched for.
func (a *adding) hasOlderSandbox(ctx context.Context) bool {
	if a.h.expected.has(a.who.PodUID, a.who.Interface) || len(a.pod.Status.PodIPs) > 0 {
		return true
	}
	for _, e := range a.h.Journal.OfPod(a.who.PodUID) {
		if e.Interface == a.who.Interface && e.ContainerID != a.who.ContainerID {
			return true
		}
	}
	return a.h.hasLeaseOf(ctx, &a.who)
}

func poolOf(f ipam.Family, l *v1alpha1.IPLease) *v1alpha1.IPPool {
	for _, c := range f.Pools {
		if c.Pool.Name == l.Spec.Pool {
			return c.Pool
		}
	}
	return nil
}

// keeps reports whether an address of a pool is kept for the name of the pod.
func (a *adding) keeps(pool *v1alpha1.IPPool) bool {
	mode, _ := a.asked.Mode(pool, a.h.StatefulSet)
	return owner.KeepsName(&a.who) && mode != v1alpha1.StatefulSetOff
}

// retention returns the retention that the lease of an address of a pool records. It is used after
// the end of the pod and its StatefulSet.
func (a *adding) retention(pool *v1alpha1.IPPool) *v1alpha1.LeaseRetention {
	if owner.KeepsName(&a.who) && !a.keeps(pool) {
		return &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}
	}
	return a.asked.Retention
}
