// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// leases returns the leases of a pool.
func (a *act) leases(ctx context.Context, pool string) ([]v1alpha1.IPLease, error) {
	list := &v1alpha1.IPLeaseList{}
	if err := a.api.List(ctx, list, client.MatchingFields{"spec.pool": pool}); err != nil {
		return nil, fmt.Errorf("list the leases of pool %s: %w", pool, err)
	}
	return list.Items, nil
}

// lease returns the lease of an address.
func (a *act) lease(ctx context.Context, addr netip.Addr) (*v1alpha1.IPLease, error) {
	l := &v1alpha1.IPLease{}
	if err := a.api.Get(ctx, client.ObjectKey{Name: v1alpha1.LeaseName("", addr)}, l); err != nil {
		return nil, fmt.Errorf("read the lease of %s: %w", addr, err)
	}
	return l, nil
}

// forceDelete deletes a lease in the way that a person has to.
func (a *act) forceDelete(ctx context.Context, l *v1alpha1.IPLease) error {
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:"scenario"}}}`, v1alpha1.AnnotationForceDelete)))
	err := a.api.Patch(ctx, l, patch)
	if err == nil {
		err = a.api.Delete(ctx, l)
	}
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("delete lease %s by force: %w", l.Name, err)
	}
	return nil
}

// nothingIsLeft removes the namespace and judges that the ends of its pods have
// freed every address.
func (a *act) nothingIsLeft(ctx context.Context, pools ...string) error {
	if err := a.removeNamespace(ctx); err != nil {
		return err
	}
	for _, pool := range pools {
		// What is Retained for a StatefulSet ends a moment after it.
		if err := a.hasNoLease(ctx, pool); err != nil {
			return fmt.Errorf("all pods are gone: %w", err)
		}
	}
	return nil
}

// hasNoLease waits until a pool has no lease.
func (a *act) hasNoLease(ctx context.Context, pool string) error {
	return eventually(ctx, eventLimit, "no lease in pool "+pool, func(ctx context.Context) error {
		left, err := a.leases(ctx, pool)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are %s", brief(left))
		}
		return err
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

// boundTo returns an error unless the lease of the address is Bound to the pod.
func (a *act) boundTo(ctx context.Context, addr netip.Addr, uid string) error {
	l, err := a.lease(ctx, addr)
	if err != nil {
		return err
	}
	if l.Spec.State != v1alpha1.StateBound || l.Spec.Holder == nil {
		return errors.New(describe(l))
	}
	if l.Spec.Holder.PodUID != uid {
		return fmt.Errorf("%s, whose UID is %s", describe(l), l.Spec.Holder.PodUID)
	}
	return nil
}
