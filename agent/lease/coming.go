package lease

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// ComingFree counts the leases of a pool that are expected to end within
// seconds, so that an exhausted pool is worth waiting for. Bound and Retained
// leases, which are most of a full pool, do not travel. Read past any cache.
func (s *Store) ComingFree(ctx context.Context, pool string) (int, error) {
	var list v1alpha1.IPLeaseList
	err := s.o.Reader.List(ctx, &list, client.MatchingFieldsSelector{Selector: fields.AndSelectors(
		fields.OneTermEqualSelector("spec.pool", pool),
		fields.OneTermNotEqualSelector("spec.state", string(v1alpha1.StateBound)),
		fields.OneTermNotEqualSelector("spec.state", string(v1alpha1.StateRetained)),
	)})
	if err := s.counted("list", err); err != nil {
		return 0, fmt.Errorf("list leases of pool %s that may end: %w", pool, err)
	}
	coming := 0
	for i := range list.Items {
		if comesFree(&list.Items[i].Spec) {
			coming++
		}
	}
	return coming, nil
}

// comesFree tells whether a lease is expected to end within seconds: its node
// gives a Warm one up for who needs it, and a verification frees a Quarantined
// one, unless it is kept for its pod's name. Another speaker may stay for ever.
func comesFree(s *v1alpha1.IPLeaseSpec) bool {
	switch s.State {
	case v1alpha1.StateWarm:
		return true
	case v1alpha1.StateQuarantined:
		return s.Reason != v1alpha1.ReasonConflict && !IsStatic(s)
	}
	return false
}
