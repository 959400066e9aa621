// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/internal/owner"
)

// turnWatch is how long a watch of a lease lasts. The next pass begins another one if the pod still stands behind.
const turnWatch = time.Minute

// watchTurn has each change of a lease wake the entries that stand behind its holder, unless it is watched already: a
// virtual machine is mute meanwhile, and the hint of the node comes one write later. A watch may miss a change; then
// the hint wakes them, and a GET decides anyway (R7).
func (w *Worker) watchTurn(ctx context.Context, name string) {
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
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watched, name)
	}()
}

// beginPod is podOf while the lease is read as well. result waits for it.
func (w *Worker) beginPod(ctx context.Context, e attachment.Entry) (result func() (*corev1.Pod, error)) {
	var pod *corev1.Pod
	var reads errgroup.Group
	reads.Go(func() (err error) { pod, err = w.podOf(ctx, &e); return err })
	return func() (*corev1.Pod, error) { err := reads.Wait(); return pod, err }
}

// followTurn resumes an address of a pod that stands behind the holder (R15). readPod returns the pod. gone reports
// that the entry is gone.
func (r *resumption) followTurn(ctx context.Context, readPod func() (*corev1.Pod, error)) (gone bool, err error) {
	who := owner.MachinePod(r.e.PodNamespace, r.e.PodName, r.e.PodUID, r.e.Machine)
	switch lease.TurnOf(&who, r.w.Self.Name, r.e.Created, r.w.Clock.Now(), r.l) {
	case lease.StayBehind:
		r.w.watchTurn(ctx, r.address.LeaseName)
		return false, errBehind
	case lease.LoseTurn:
		r.w.Log.Info("the target of a migration never gets its address", "address", r.address.Addr, "pod", r.e.PodNamespace+"/"+r.e.PodName)
		return true, r.yield(ctx)
	}
	pod, err := readPod()
	if err != nil {
		return false, err
	}
	if pod == nil || pod.DeletionTimestamp != nil {
		return true, r.w.releaseAfterNewer(ctx, r.e)
	}
	return false, r.takeTurn(ctx, pod)
}
