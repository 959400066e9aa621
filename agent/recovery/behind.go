// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/internal/owner"
)

// followTurn resumes an address of a pod that stands behind the holder (R15). gone reports that the
// entry is gone.
func (r *resumption) followTurn(ctx context.Context) (gone bool, err error) {
	who := owner.MachinePod(r.e.PodNamespace, r.e.PodName, r.e.PodUID, r.e.Machine)
	switch lease.TurnOf(&who, r.w.Self.Name, r.e.Created, r.w.Clock.Now(), r.l) {
	case lease.StayBehind:
		return false, errBehind
	case lease.LoseTurn:
		r.w.Log.Info("the target of a migration never gets its address", "address", r.address.Addr, "pod", r.e.PodNamespace+"/"+r.e.PodName)
		return true, r.yield(ctx)
	}
	return r.takeTurn(ctx)
}

// endWait lets an address speak that had to wait for the first turn of its interface.
func (r *resumption) endWait(ctx context.Context) error {
	address, ok := r.e.Lease(r.address.LeaseName)
	if !ok || !address.Waits {
		return nil
	}
	if r.e.IsStandby() {
		return errBehind
	}
	g, end, err := r.regain(ctx)
	defer end()
	if err != nil {
		return err
	}
	r.address, r.address.Waits = address, false
	return g.speak(r.w.Self.Claim(g.pool.ConflictMode(), r.address, nil), "migrated")
}
