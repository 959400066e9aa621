// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/internal/audit"
)

// recordTimeout bounds the calls to the API server for one conflict.
const recordTimeout = 10 * time.Second

// conflict is a second speaker for the address of a lease.
type conflict struct {
	segment.Conflict
	lease string
}

// Met handles a conflict. The event loop calls it; it does not block.
func (d *Defence) Met(c segment.Conflict) {
	e, address, held := d.Attachments.Holder(c.Holding.Parent, c.Holding.Addr)
	if !held {
		return
	}
	d.Conflict(address.Pool, c.Source)
	audit.Log(d.Log, audit.Conflict, e.Audit(address, d.Node, "speaker "+c.MAC.String()))
	if !d.pace.allow(address.LeaseName) {
		return
	}
	select {
	case d.waiting <- conflict{c, address.LeaseName}:
	default:
		d.Log.Info("the conflict is not recorded on its lease: too many conflicts wait", "lease", address.LeaseName, "speaker", c.MAC.String())
	}
}

// Run records conflicts on their leases until ctx ends.
func (d *Defence) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-d.waiting:
			if err := d.write(ctx, c); err != nil && ctx.Err() == nil {
				d.Log.Info("the conflict could not be recorded on its lease", "lease", c.lease, "why", err.Error())
			}
		}
	}
}

// write records a conflict on its lease and in an event.
func (d *Defence) write(ctx context.Context, c conflict) error {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	l, err := d.Leases.Get(ctx, c.lease)
	if err != nil {
		return err
	}
	if _, err := d.Leases.Update(ctx, l, lease.RecordConflict(lease.Evidence{MAC: c.MAC.String(), Source: string(c.Source)})); err != nil {
		return err
	}
	d.Events.Eventf(l, nil, corev1.EventTypeWarning, "AddressConflict", "Guard", "%s also uses %s", c.MAC, c.Holding.Addr)
	return nil
}
