// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/agent/lease"
)

// tellAfter is how late the record of a move may be without an event.
const tellAfter = 10 * time.Second

// recordMove writes the lease of an address for this sandbox. The address has moved here from an older
// sandbox of the pod while the API server was away. The caller has read the lease, and it still names a sandbox
// of this pod on this node, in this session.
func (r *resumption) recordMove(ctx context.Context) error {
	holder, late := *r.l.Spec.Holder, r.w.Clock.Since(r.address.Moved)
	holder.ContainerID, holder.MAC, holder.Guarded = r.e.ContainerID, r.e.MAC, !r.w.Guards.Alone(&r.e)
	l, err := r.w.Leases.TakeOver(ctx, r.l, lease.Request{
		Pool: r.l.Spec.Pool, Network: r.address.Network, Addr: r.address.Addr, Parent: r.e.Parent,
		Holder: holder, Retention: r.l.Spec.Retention,
	})
	if err != nil {
		return fmt.Errorf("record that the address has moved to container %s: %w", r.e.ContainerID, err)
	}
	if err := r.adopt(l, "moved from an older sandbox while the API server was away"); err != nil {
		return err
	}
	if late >= tellAfter {
		r.w.warn(&r.e, "AddressMoved",
			"%s moved to this sandbox %s ago, while the API server was away; its lease records that only now", r.address.Addr, late.Round(time.Second))
	}
	return nil
}
