// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"fmt"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// keptLeases returns the leases that already belong to this pod: the leases of its name if it keeps
// its name, or of an older sandbox of the same pod.
func (a *adding) keptLeases(ctx context.Context) ([]v1alpha1.IPLease, error) {
	if !lease.KeepsName(&a.who) && !a.hasOlderSandbox(ctx) {
		return nil, nil
	}
	all, err := a.h.Leases.OfPod(ctx, a.who.Namespace, a.who.Pod)
	if err != nil {
		return nil, fmt.Errorf("look for leases of pod %s/%s: %w", a.who.Namespace, a.who.Pod, err)
	}
	var kept []v1alpha1.IPLease
	for _, l := range all {
		holder := l.Spec.Holder
		if holder == nil || holder.Interface != a.who.Interface {
			continue
		}
		if lease.KeepsName(&a.who) || holder.PodUID == a.who.PodUID {
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

// keptFor returns the kept lease of a family, or nil. left are the leases of pools
// that the pod's annotation no longer names; the controller frees them once the pod
// has its new address. A lease that was left earlier may still be quarantined: of
// several leases, keptFor prefers one whose pool serves the pod.
func keptFor(kept []v1alpha1.IPLease, f ipam.Family) (l *v1alpha1.IPLease, left []v1alpha1.IPLease) {
	for i := range kept {
		switch {
		case kept[i].Spec.Addr().Is6() != f.IPv6:
		case f.Left(kept[i].Spec.Pool):
			left = append(left, kept[i])
		case l == nil, poolOf(f, l) == nil && poolOf(f, &kept[i]) != nil:
			l = &kept[i]
		}
	}
	return l, left
}

func poolOf(f ipam.Family, l *v1alpha1.IPLease) *v1alpha1.IPPool {
	for _, c := range f.Pools {
		if c.Pool.Name == l.Spec.Pool {
			return c.Pool
		}
	}
	return nil
}

// rejectionOf explains why the pool of a lease does not serve: the rules excluded the pool, or no
// annotation or configuration names it.
func rejectionOf(f ipam.Family, l *v1alpha1.IPLease) string {
	for _, r := range f.Rejected {
		if r.Pool == l.Spec.Pool {
			return ": " + r.Detail
		}
	}
	if f.Requested.IsValid() {
		return "" // of the named pools, only the pool of that address is considered
	}
	return ": it is not one of the pools of " + f.Source
}
