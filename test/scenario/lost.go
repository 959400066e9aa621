// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"net/netip"
	"slices"
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

// playLost: all leases are deleted by force while new pods start. The living pods notice nothing,
// nobody gets an address twice, and the leases come back.
func playLost(ctx context.Context, a *act) {
	a.makePool(ctx, 2*laterPods, nil)
	a.deploy(ctx, livingPods)
	living := a.running(ctx, livingPods, everyPod)
	var addrs []netip.Addr
	for _, p := range living {
		addrs = append(addrs, addressOf(p))
	}
	w := a.watch(addrs...)
	w.pings.waitFor(ctx, 20*livingPods)
	a.story.Say("%d pods run, and each gets a ping every %s. Now %d more start, and all leases are deleted by force.",
		livingPods, pingEvery, laterPods-livingPods)
	began := time.Now()
	a.patch(ctx, a.deployment(), `{"spec":{"replicas":%d}}`, laterPods)
	deleted := a.loseLeases(ctx, living)
	a.story.Say("%d leases were deleted.", deleted)
	pods := a.running(ctx, laterPods, everyPod)
	eventually(ctx, reclaimLimit, "all leases to be back", func(ctx context.Context) { a.distinctAndLeased(ctx, pods) })
	w.pings.waitFor(ctx, 20*livingPods)
	a.undisturbed(w, living, pods, began)
}

// loseLeases deletes all leases, and repeats that until new pods have got some. So addresses become
// free under living pods while others look for one.
func (a *act) loseLeases(ctx context.Context, living []*cluster.Pod) int {
	deleted := 0
	eventually(ctx, podLimit, "a new pod to get an address while leases are deleted", func(ctx context.Context) {
		leases := a.leases(ctx, a.namespace)
		newcomer := false
		for i := range leases {
			if leases[i].Spec.State != v1alpha1.StateBound {
				continue
			}
			newcomer = newcomer || !isHolder(living, &leases[i])
			a.forceDelete(ctx, &leases[i])
			deleted++
		}
		if deleted < livingPods || !newcomer {
			fail("%d leases were deleted, all of living pods", deleted)
		}
	})
	return deleted
}

func isHolder(pods []*cluster.Pod, l *v1alpha1.IPLease) bool {
	return slices.ContainsFunc(pods, func(p *cluster.Pod) bool { return l.Spec.Holder != nil && l.Spec.Holder.PodUID == p.UID })
}

// undisturbed: no ping of a living pod was lost, and every address had one speaker.
func (a *act) undisturbed(w *witness, living, all []*cluster.Pod, began time.Time) {
	w.pings.noneLost(began)
	frames := capture.After(w.capture.Frames(), began)
	for _, p := range all {
		speakers := capture.Speakers(frames, addressOf(p))
		for _, speaker := range speakers {
			must(speaker == macOf(p).String(), "%v speak for %s of pod %s, whose MAC is %s", speakers, addressOf(p), p.Name, macOf(p))
		}
	}
	a.story.Say("All %d pods run, and each lease is back. All pings to the first %d pods were answered.", len(all), len(living))
}
