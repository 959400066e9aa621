// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"time"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/internal/owner"
)

// turnWatch is how long a watch of a lease lasts. The next pass begins another one if the pod still stands behind.
const turnWatch = time.Minute

// watchTurn has each change of the lease wake the entries that stand behind its holder, unless it is watched already: a
// virtual machine is mute meanwhile, and the hint of the node comes one write later. A watch may miss a change; then
// the hint wakes them, and a GET decides anyway (R7).
func (r *resumption) watchTurn(ctx context.Context) {
	w, name := r.w, r.address.LeaseName
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.WatchLease == nil || w.watched[name] {
		return
	}
	w.watched[name] = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnWatch)
	go func() {
		defer cancel()
		if err := w.WatchLease(ctx, name, func() { w.Changed(name) }); err != nil {
			w.Log.Info("the lease of a migration is not watched, so its hint wakes the target", "lease", name, "why", err.Error())
			<-ctx.Done() // the next watch fails as well
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watched, name)
	}()
}

// followTurn resumes an address of a pod that stands behind the holder (R15). gone reports that the
// entry is gone.
func (r *resumption) followTurn(ctx context.Context) (gone bool, err error) {
	who := owner.MachinePod(r.e.PodNamespace, r.e.PodName, r.e.PodUID, r.e.Machine)
	switch lease.TurnOf(&who, r.w.Self.Name, r.e.Created, r.w.Clock.Now(), r.l) {
	case lease.StayBehind:
		r.watchTurn(ctx)
		return false, errBehind
	case lease.LoseTurn:
		r.w.Log.Info("the target of a migration never gets its address", "address", r.address.Addr, "pod", r.e.PodNamespace+"/"+r.e.PodName)
		return true, r.yield(ctx)
	}
	pod, err := r.w.podOf(ctx, &r.e)
	if err != nil {
		return false, err
	}
	if pod == nil || pod.DeletionTimestamp != nil {
		return true, r.w.releaseAfterNewer(ctx, r.e)
	}
	return false, r.takeTurn(ctx, pod)
}
