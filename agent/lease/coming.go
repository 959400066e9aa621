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
	var list v1alpha1.IPLeaseList
	err := s.o.Reader.List(ctx, &list, client.MatchingFieldsSelector{Selector: fields.AndSelectors(
		fields.OneTermEqualSelector("spec.pool", pool),
		fields.OneTermNotEqualSelector("spec.state", string(v1alpha1.StateBound)),
		fields.OneTermNotEqualSelector("spec.state", string(v1alpha1.StateRetained)),
	)})
	if err := s.counted("list", err); err != nil {
		return 0, fmt.Errorf("list the leases of pool %s that come free soon: %w", pool, err)
	}
	coming := 0
	for i := range list.Items {
		if comesFree(&list.Items[i].Spec) {
			coming++
		}
	}
	return coming, nil
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
	var list v1alpha1.IPLeaseList
	err := s.o.Reader.List(ctx, &list, client.MatchingFields{"spec.pool": pool, "spec.state": string(v1alpha1.StateQuarantined)})
	if err := s.counted("list", err); err != nil {
		return 0, fmt.Errorf("list the Quarantined leases of pool %s: %w", pool, err)
	}
	n := 0
	for i := range list.Items {
		if list.Items[i].Spec.ConflictMAC() == mac {
			n++
		}
	}
	return n, nil
}
