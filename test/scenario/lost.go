// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// Sizes of the scenario in which all leases are lost.
const (
	livingPods = 9
	laterPods  = 15 // with the living ones
)

// playLost: somebody deletes all leases by force while new pods start. The
// living pods do not notice, nobody gets an address twice, and the leases come
// back.
func playLost(ctx context.Context, a *act) error {
	check(a.makePool(ctx, 2*laterPods, nil))
	check(a.deploy(ctx, livingPods))
	living := value(a.running(ctx, livingPods, everyPod))
	var addrs []netip.Addr
	for _, p := range living {
		addrs = append(addrs, addressOf(p))
	}
	w := value(a.watch(addrs...))
	check(w.pings.waitFor(ctx, 20*livingPods, time.Now()))
	a.story.Say("%d pods run, and each gets a ping every %s. Now %d more start, and all leases are deleted by force.",
		livingPods, pingEvery, laterPods-livingPods)
	began := time.Now()
	check(a.scale(ctx, laterPods))
	deleted := value(a.loseLeases(ctx, living))
	lost := time.Now()
	a.story.Say("%d leases were deleted.", deleted)
	pods := value(a.running(ctx, laterPods, everyPod))
	if err := eventually(ctx, reclaimLimit, "all leases to be back", func(ctx context.Context) error {
		return a.distinctAndLeased(ctx, pods)
	}); err != nil {
		return err
	}
	a.figures.add("leases deleted", deleted)
	a.figures.add("all leases back, after the last deletion", time.Since(lost))
	check(w.pings.waitFor(ctx, 20*livingPods, time.Now()))
	return a.undisturbed(w, living, pods, began)
}

// loseLeases deletes every lease there is, again and again until new pods have
// come between, so that addresses become free under living pods while others
// look for one.
func (a *act) loseLeases(ctx context.Context, living []*cluster.Pod) (int, error) {
	deleted := 0
	err := eventually(ctx, podLimit, "a new pod to get an address while leases are deleted", func(ctx context.Context) error {
		leases, err := a.leases(ctx, a.namespace)
		if err != nil {
			return err
		}
		newcomer := false
		for i := range leases {
			if leases[i].Spec.State != v1alpha1.StateBound {
				continue
			}
			newcomer = newcomer || !isHolder(living, &leases[i])
			if err := a.forceDelete(ctx, &leases[i]); err != nil {
				return err
			}
			deleted++
		}
		if deleted < livingPods || !newcomer {
			return fmt.Errorf("%d leases were deleted, all of living pods", deleted)
		}
		return nil
	})
	return deleted, err
}

func isHolder(pods []*cluster.Pod, l *v1alpha1.IPLease) bool {
	for _, p := range pods {
		if l.Spec.Holder != nil && l.Spec.Holder.PodUID == p.UID {
			return true
		}
	}
	return false
}

// undisturbed: no ping of a living pod was lost, and every address had one
// speaker.
func (a *act) undisturbed(w *witness, living, all []*cluster.Pod, began time.Time) error {
	if lost := lostSince(w.pings.all(), began, time.Now()); lost > 0 {
		return fmt.Errorf("%d pings to living pods were lost", lost)
	}
	frames := capture.After(w.capture.Frames(), began)
	var errs []error
	for _, p := range all {
		mac := value(p.MAC())
		speakers := capture.Speakers(frames, addressOf(p))
		if len(speakers) > 1 || len(speakers) == 1 && speakers[0] != mac.String() {
			errs = append(errs, fmt.Errorf("%v speak for %s of pod %s, whose MAC is %s", speakers, addressOf(p), p.Name, mac))
		}
	}
	answered := 0
	for _, p := range w.pings.all() {
		if !p.sent.Before(began) && !p.answered.IsZero() {
			answered++
		}
	}
	a.figures.add("pings to living pods answered, and lost", fmt.Sprintf("%d, 0", answered))
	a.story.Say("All %d pods run, and each lease is back. All %d pings to the first %d pods were answered.", len(all), answered, len(living))
	return errors.Join(errs...)
}
