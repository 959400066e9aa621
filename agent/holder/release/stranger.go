// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"

	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// stranger returns another pod of this node, or another interface of the pod, that
// uses the address of an ADD that is being undone. Its record was lost; otherwise the
// ADD could not have got the lease.
func (r *Releaser) stranger(e *journal.Entry, address journal.Address) (living journal.Entry, ok bool, err error) {
	key := guards.Key(e, address)
	living, _, held := r.Holder(key)
	// An older sandbox of the same interface does not count.
	if !held || living.PodNamespace == e.PodNamespace && living.PodName == e.PodName && living.Interface == e.Interface {
		return living, false, nil
	}
	dead, err := r.Guards.Dead(living.Slot)
	if err != nil || dead {
		return living, false, err
	}
	fenced, err := r.Guards.Fenced(e, address)
	return living, !fenced, err
}

// leaveTo quarantines a lease for the pod that uses its address; recovery of that pod
// takes the lease back. Freeing the lease would kill the slots of that pod first (R4).
func (r *Releaser) leaveTo(ctx context.Context, living *journal.Entry, l *v1alpha1.IPLease) error {
	_, err := r.Leases.Update(ctx, l, lease.QuarantineConflict(lease.Evidence{MAC: living.MAC, Source: string(segment.SourceProbe)}))
	if errors.Is(err, lease.ErrGone) || errors.Is(err, lease.ErrNotMine) {
		return nil
	}
	return err
}
