// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// ComingFree counts the leases of a pool that are expected to end within seconds:
// an ADD waits for them if the pool is exhausted. It reads past any cache. Bound
// and Retained leases, which are most of a full pool, are not transferred.
func (s *Store) ComingFree(ctx context.Context, pool string) (int, error) {
	n, err := s.count(ctx, comesFree, client.MatchingFieldsSelector{Selector: fields.AndSelectors(
		fields.OneTermEqualSelector("spec.pool", pool),
		fields.OneTermNotEqualSelector("spec.state", string(v1alpha1.StateBound)),
		fields.OneTermNotEqualSelector("spec.state", string(v1alpha1.StateRetained)),
	)})
	if err != nil {
		return 0, fmt.Errorf("list the leases of pool %s that come free soon: %w", pool, err)
	}
	return n, nil
}

// count counts the selected leases that have a property.
func (s *Store) count(ctx context.Context, has func(*v1alpha1.IPLeaseSpec) bool, selector client.ListOption) (n int, err error) {
	var list v1alpha1.IPLeaseList
	err = s.counted("list", s.o.Reader.List(ctx, &list, selector))
	for i := range list.Items {
		if has(&list.Items[i].Spec) {
			n++
		}
	}
	return n, err
}

// comesFree reports whether a lease is expected to end within seconds. Its node releases a Warm
// lease when another node needs the address. A verification frees a Quarantined lease that is not
// kept for its pod, unless its reason is a conflict: the other speaker may stay forever.
func comesFree(s *v1alpha1.IPLeaseSpec) bool {
	switch s.State {
	case v1alpha1.StateWarm:
		return true
	case v1alpha1.StateQuarantined:
		return s.Reason != v1alpha1.ReasonConflict && !IsStatic(s) && !mayReturn(s)
	}
	return false
}

// ConflictsWith counts the addresses of a pool that are Quarantined because the host with a MAC
// answers for them. It reads past any cache.
func (s *Store) ConflictsWith(ctx context.Context, pool, mac string) (int, error) {
	n, err := s.count(ctx, func(l *v1alpha1.IPLeaseSpec) bool { return l.ConflictMAC() == mac },
		client.MatchingFields{"spec.pool": pool, "spec.state": string(v1alpha1.StateQuarantined)})
	if err != nil {
		return 0, fmt.Errorf("list the Quarantined leases of pool %s: %w", pool, err)
	}
	return n, nil
}
