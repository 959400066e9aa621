// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// leases returns the leases of a pool.
func (a *act) leases(ctx context.Context, pool string) []v1alpha1.IPLease {
	list := &v1alpha1.IPLeaseList{}
	did(a.api.List(ctx, list, client.MatchingFields{"spec.pool": pool}), "list the leases of pool %s", pool)
	return list.Items
}

// lease returns the lease of an address.
func (a *act) lease(ctx context.Context, addr netip.Addr) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{}
	did(a.api.Get(ctx, client.ObjectKey{Name: v1alpha1.LeaseName("", addr)}, l), "read the lease of %s", addr)
	return l
}

// forceDelete deletes a lease as a person must do it.
func (a *act) forceDelete(ctx context.Context, l *v1alpha1.IPLease) {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"scenario"}}}`, v1alpha1.AnnotationForceDelete))
	err := a.api.Patch(ctx, l, patch)
	if err == nil {
		err = a.api.Delete(ctx, l)
	}
	did(client.IgnoreNotFound(err), "delete lease %s by force", l.Name)
}

// nothingIsLeft removes the namespace and judges that the ends of its pods have
// freed every address.
func (a *act) nothingIsLeft(ctx context.Context, pools ...string) {
	a.removeNamespace(ctx)
	for _, pool := range pools {
		// What is Retained for a StatefulSet ends a moment after it.
		during(func() { a.hasNoLease(ctx, pool, eventLimit) }, "all pods are gone")
	}
}

// hasNoLease waits until a pool has no lease.
func (a *act) hasNoLease(ctx context.Context, pool string, limit time.Duration) {
	eventually(ctx, limit, "no lease in pool "+pool, func(ctx context.Context) {
		left := a.leases(ctx, pool)
		must(len(left) == 0, "there are %s", brief(left))
	})
}

// brief lists leases with their states.
func brief(leases []v1alpha1.IPLease) string {
	if len(leases) == 0 {
		return "none"
	}
	var words []string
	for _, l := range leases {
		words = append(words, describe(&l))
	}
	return strings.Join(words, ", ")
}

// describe returns a lease with its state, node and holder, for errors.
func describe(l *v1alpha1.IPLease) string {
	text := fmt.Sprintf("%s %s on %s", l.Name, l.Spec.State, l.Spec.NodeName)
	if l.Spec.Holder != nil {
		text += " of pod " + l.Spec.Holder.Pod
	}
	if l.Spec.Reason != "" {
		text += fmt.Sprintf(" (%s: %q)", l.Spec.Reason, l.Spec.Message)
	}
	return text
}

// boundTo fails unless the lease of the address is Bound to the pod.
func (a *act) boundTo(ctx context.Context, addr netip.Addr, uid string) {
	l := a.lease(ctx, addr)
	must(l.Spec.State == v1alpha1.StateBound && l.Spec.Holder != nil, "%s", describe(l))
	must(l.Spec.Holder.PodUID == uid, "%s, whose UID is %s", describe(l), l.Spec.Holder.PodUID)
}
