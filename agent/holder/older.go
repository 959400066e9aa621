// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// keptLeases returns the leases that already belong to this pod: the leases of its name or virtual
// machine if these come back, or of an older sandbox of the same pod.
func (a *add) keptLeases(ctx context.Context) ([]v1alpha1.IPLease, error) {
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
// same pod. Otherwise no search for leases is needed.
func (a *add) hasOlderSandbox(ctx context.Context) bool {
	if a.h.Releaser.Expected.Has(a.who.PodUID, a.who.Interface) || len(a.pod.Status.PodIPs) > 0 {
		return true
	}
	for _, e := range a.h.Attachments.OfPod(a.who.PodUID) {
		if e.Interface == a.who.Interface && e.ContainerID != a.who.ContainerID {
			return true
		}
	}
	leases := &v1alpha1.IPLeaseList{}
	if err := a.h.Cache.List(ctx, leases, client.UnsafeDisableDeepCopy); err != nil {
		return true // a search past the cache decides
	}
	for i := range leases.Items {
		l := leases.Items[i].Spec.Holder
		if l != nil && l.PodUID == a.who.PodUID && l.Interface == a.who.Interface {
			return true
		}
	}
	return false
}
