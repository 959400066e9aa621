// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Explain returns the decision about a lease, and carries nothing out. Only the running controller
// remembers when it first saw that an object is gone. Here such times begin with the call.
func (r *Reconciler) Explain(ctx context.Context, lease *v1alpha1.IPLease) (Action, error) {
	pool, err := read[v1alpha1.IPPool](ctx, r.Client, "", lease.Spec.Pool)
	if err != nil {
		return Action{}, err
	}
	n := newMemory().about(lease, lease.Spec.Since.Time)
	f, err := r.look(ctx, lease, pool, n)
	if err != nil {
		return Action{}, fmt.Errorf("look at lease %s: %w", lease.Name, err)
	}
	return Decide(f), nil
}
