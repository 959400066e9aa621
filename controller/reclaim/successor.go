// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/internal/owner"
)

// A pod has one address of each IP family on an interface. If the next pod of a name has another
// address, because its annotation now names other pools, no pod needs the kept address. Decide
// checks whether that next pod exists. The same applies to the next sandbox of a pod.

// isSettled reports whether a lease belongs to a pod for good. A lease that was taken over is settled
// once the take-over is confirmed.
func isSettled(s *v1alpha1.IPLeaseSpec) bool {
	return s.State == v1alpha1.StateBound && s.Previous == nil && s.Holder != nil
}

// isKeptForPod reports whether a lease is kept for the next sandbox of its pod, and not for a name.
func isKeptForPod(s *v1alpha1.IPLeaseSpec) bool {
	return s.State == v1alpha1.StateRetained && s.Reason == v1alpha1.ReasonSandboxEnded && s.Holder != nil
}

// succeeds reports whether the pod for which kept is retained got l instead.
func succeeds(l, kept *v1alpha1.IPLease) bool {
	if l.Name == kept.Name || l.DeletionTimestamp != nil || !isSettled(&l.Spec) || kept.Spec.Holder == nil {
		return false
	}
	now, before := l.Spec.Holder, kept.Spec.Holder
	if now.Interface != before.Interface || l.Spec.Addr().Is6() != kept.Spec.Addr().Is6() {
		return false
	}
	if isKeptForPod(&kept.Spec) {
		return now.Namespace == before.Namespace && now.Pod == before.Pod && now.PodUID == before.PodUID
	}
	return owner.Same(now, before) && owner.KeepsName(now) && owner.KeepsName(before) && now.OwnerName == before.OwnerName
}

// successor returns the successor of a Retained lease in the cache, or nil.
func (r Reader) successor(ctx context.Context, kept *v1alpha1.IPLease) (*v1alpha1.IPLease, error) {
	holder := kept.Spec.Holder
	if holder == nil {
		return nil, nil
	}
	all, err := cache.LeasesOf(ctx, r.Cache, cache.IdentityKey(holder))
	if err != nil {
		return nil, err
	}
	for i := range all {
		if succeeds(&all[i], kept) {
			return &all[i], nil
		}
	}
	return nil, nil
}

// successorNow returns the successor from the API server, or nil if it no longer is one.
func successorNow(ctx context.Context, live client.Reader, f Facts) (*v1alpha1.IPLease, error) {
	now, err := read[v1alpha1.IPLease](ctx, live, "", f.Successor.Name)
	if err != nil || now == nil || !succeeds(now, f.Lease) {
		return nil, err
	}
	return now, nil
}
