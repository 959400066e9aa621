// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// setAsideLastBoot quarantines leases that are Bound to pods of this node from before its last boot
// and have no entry in the journal. A power failure may have lost the last entries of the journal.
// The pods ended with the boot; only a verification frees their addresses (R8). The cache is
// sufficient, because the preconditions of the write decide.
func (w *Worker) setAsideLastBoot(ctx context.Context) error {
	if w.lastBootDone {
		return nil
	}
	leases := &v1alpha1.IPLeaseList{}
	if err := w.Cache.List(ctx, leases); err != nil {
		return fmt.Errorf("list the leases of this node: %w", err)
	}
	var errs []error
	for i := range leases.Items {
		l := &leases.Items[i]
		if !lease.IsOfLastBoot(&l.Spec, w.Self.Name, w.Self.Session) {
			continue
		}
		w.Releaser.Expected.Add(l.Spec.Holder)
		e, _ := w.Attachments.Get(l.Spec.Holder.ContainerID, l.Spec.Holder.Interface)
		if _, named := e.Lease(l.Name); named {
			continue // its entry is released
		}
		_, err := w.Leases.Update(ctx, l, lease.Quarantine(v1alpha1.ReasonNodeRestarted, "bound before the last boot of the node"))
		if err != nil && !errors.Is(err, lease.ErrGone) && !errors.Is(err, lease.ErrNotMine) {
			errs = append(errs, err)
		}
	}
	w.lastBootDone = len(errs) == 0
	return errors.Join(errs...)
}
