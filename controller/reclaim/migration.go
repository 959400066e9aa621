// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/owner"
)

// The target of a live migration is mute from the moment at which its virtual machine runs there until the
// machine is read, claimed and proven. So a watch wakes the lease at each change of the machine.
const (
	// unwatchedPeriod is how often the machine is read without a watch, watchedPeriod with one.
	unwatchedPeriod = 250 * time.Millisecond
	watchedPeriod   = 5 * time.Second
	// watchLimit is how long a watch lasts. The next one begins watchPause later if the machine still migrates, or
	// watchLimit if the right is missing.
	watchLimit = 10 * time.Minute
	watchPause = time.Second
)

// Migration is a live migration of the holder's virtual machine. The zero Migration is none.
type Migration struct {
	// Target is the pod that waits for the address.
	Target *podview.Pod
	// State is that of the virtual machine, read live. It is the zero value if Unknown says why it could
	// not be read.
	State   owner.Migration
	Unknown string
	// Watched: the next change of the virtual machine wakes the lease.
	Watched bool
}

// decideHandOver decides about the address of a virtual machine that migrates (R15). Nothing is taken
// by force, so this does not depend on reclaim. ok is false if another rule decides.
func decideHandOver(f Facts) (a Action, ok bool) {
	target, holder := f.Migration.Target, f.Lease.Spec.Holder
	if target == nil || holder == nil || !f.Pod.Known || f.Pod.Object == nil || !isHolder(f.Pod.Object, holder.PodUID) {
		return Action{}, false
	}
	if f.Migration.Unknown != "" {
		return Action{Kind: Wait, Until: f.Now.Add(ownerPeriod), Tell: true,
			Why: fmt.Sprintf("pod %s is mute until the end of pod %s: %s", target.Name, holder.Pod, f.Migration.Unknown)}, true
	}
	handsOver, why := f.Migration.State.HandsOver(holder.Pod, target.Name)
	if handsOver {
		return Action{Kind: Quarantine, Reason: v1alpha1.ReasonMigrated, Verifier: target.Spec.NodeName, Why: why}, true
	}
	return Action{}, false
}

// untilMigrated shortens the wait for the next decision about a machine that migrates.
func untilMigrated(f Facts, a Action) Action {
	next := f.Now.Add(unwatchedPeriod)
	if f.Migration.Watched {
		next = f.Now.Add(watchedPeriod)
	}
	if f.Migration.Target == nil || a.Kind != None && (a.Kind != Wait || a.Until.Before(next)) {
		return a
	}
	a.Kind, a.Until = Wait, next
	return a
}

// lookAtMigration looks for a pod that is the target of a migration of the holder's virtual machine,
// and reads the machine if there is one.
func (r Reader) lookAtMigration(ctx context.Context, holder *v1alpha1.Holder) (Migration, error) {
	if holder == nil || !owner.IsMachine(holder) {
		return Migration{}, nil
	}
	var pods podview.PodList
	err := r.Cache.List(ctx, &pods, client.UnsafeDisableDeepCopy,
		client.MatchingFields{cache.TargetsByMachine: cache.IdentityKey(holder)})
	if err != nil {
		return Migration{}, fmt.Errorf("list the targets of migrations of %s: %w", owner.Identity(holder), err)
	}
	m := Migration{Target: latestTarget(pods.Items, holder)}
	if m.Target == nil {
		return m, nil
	}
	m.State, err = r.Owners.Migration(ctx, holder)
	if errors.Is(err, owner.ErrNoRight) || errors.Is(err, owner.ErrNoAPI) || errors.Is(err, owner.ErrGone) {
		m.Unknown = err.Error()
		return m, nil
	}
	return m, err
}

// latestTarget returns the latest target that may run, or nil. The holder itself may be the target of
// an earlier migration.
func latestTarget(pods []podview.Pod, holder *v1alpha1.Holder) *podview.Pod {
	var latest *podview.Pod
	for i := range pods {
		pod := &pods[i]
		if string(pod.UID) == holder.PodUID || pod.Spec.NodeName == "" || pod.IsFinished() || isTerminating(pod) {
			continue
		}
		if latest == nil || latest.CreationTimestamp.Before(&pod.CreationTimestamp) {
			latest = pod
		}
	}
	return latest
}

// follower has a watch for each virtual machine that migrates.
type follower struct {
	clock clock.Clock
	// watch calls changed at the start of a watch of the holder's virtual machine and at each change, and returns when
	// the watch ends. wake wakes the leases of the virtual machine.
	watch func(ctx context.Context, h *v1alpha1.Holder, changed func()) error
	wake  func(context.Context, *v1alpha1.Holder)

	mu sync.Mutex
	// open has the virtual machines that are followed, by their IdentityKey, and whether there is a watch now.
	open map[string]bool
}

// follow begins to watch the virtual machine of a holder, unless it is watched already. It reports whether the next
// change wakes its leases. A watch that begins or ends wakes them as well. Watches end with ctx.
func (w *follower) follow(ctx context.Context, h *v1alpha1.Holder) bool {
	key := cache.IdentityKey(h)
	w.mu.Lock()
	defer w.mu.Unlock()
	isOpen, known := w.open[key]
	if known {
		return isOpen
	}
	set := func(open bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open[key] = open
	}
	w.open[key] = false
	go func() {
		err := w.watch(ctx, h, func() {
			set(true)
			w.wake(ctx, h)
		})
		pause := watchPause
		if err != nil && ctx.Err() == nil {
			if errors.Is(err, owner.ErrNoRight) {
				pause = watchLimit
			}
			log.FromContext(ctx).Info("a migration cannot be watched, so it is read every 250 ms", "of", key, "why", err.Error())
		}
		set(false)
		w.wake(ctx, h)
		loop.For(ctx, w.clock, pause, nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, key)
	}()
	return false
}
