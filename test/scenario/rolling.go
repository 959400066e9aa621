// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// rolledPods is the number of pods of the rolling update. The pool has one spare address.
	rolledPods = 10
	// servedHalf and servedMost bound the time from the release of an address until a pod that waited
	// has it, for half of the releases and for 99 of 100.
	servedHalf, servedMost = time.Second, 3 * time.Second
)

// rollsOn: a rolling update on a pool with one spare address. Its pods wait for each other's addresses,
// and get each of them as soon as it is free.
func (a *act) rollsOn(ctx context.Context, c *chronicle) {
	a.editPool(ctx, a.namespace, func(s *v1alpha1.IPPoolSpec) { s.IPs = a.ips(firstHost, rolledPods+1) })
	a.deploy(ctx, rolledPods)
	a.running(ctx, rolledPods, everyPod)
	began := time.Now()
	a.rollOut(ctx, a.deployment(), 1)
	eventually(ctx, rollLimit, "the rolling update to end", func(ctx context.Context) { a.rolledOut(ctx, client.ObjectKeyFromObject(a.deployment())) })
	entries, _ := c.all()
	waits := a.waitsSince(ctx)
	took := handedOn(entries, waits, began)
	must(len(took) != 0, "no pod has waited for another pod's address")
	half, most := took[len(took)/2], took[(len(took)-1)*99/100]
	a.story.Say("In a rolling update of %d pods on %d addresses, %d pods wait for an address. They have it %s (half) and %s (99 of 100) after it is free.",
		rolledPods, rolledPods+1, len(took), round(half), round(most))
	must(half <= servedHalf && most <= servedMost,
		"addresses came free and were leased by waiting pods only after %s (half) and %s (99 of 100)", half, most)
}

// waitsSince returns the time of the first event that tells each pod that it waits.
func (a *act) waitsSince(ctx context.Context) map[string]time.Time {
	events := &corev1.EventList{}
	did(a.api.List(ctx, events, client.InNamespace(a.namespace)), "list events")
	first := map[string]time.Time{}
	for i := range events.Items {
		e := &events.Items[i]
		if e.Reason != "AddressAwaited" {
			continue
		}
		at, told := e.EventTime.Time, first[e.InvolvedObject.Name]
		if at.IsZero() {
			at = e.FirstTimestamp.Time
		}
		if told.IsZero() || at.Before(told) {
			first[e.InvolvedObject.Name] = at
		}
	}
	return first
}

// handedOn returns the times from the end of a lease until a pod that already waited has a lease of
// the address, in ascending order.
func handedOn(entries []entry, waits map[string]time.Time, since time.Time) []time.Duration {
	var took []time.Duration
	free := map[string]time.Time{}
	for _, e := range entries {
		addr := e.Spec.Address
		if e.gone {
			free[addr] = e.at
			continue
		}
		gone, ok := free[addr]
		delete(free, addr)
		if !ok || gone.Before(since) || e.Spec.Holder == nil {
			continue
		}
		if at, waited := waits[e.Spec.Holder.Pod]; waited && at.Before(gone) {
			took = append(took, e.at.Sub(gone))
		}
	}
	slices.Sort(took)
	return took
}

// rollLimit is the time in which a Deployment must replace its pods while a part of the cluster
// restarts.
const rollLimit = 2 * time.Minute

// churn replaces all pods of the Deployment, again and again.
type churn struct {
	*act
	stop context.CancelFunc
	done chan struct{}
	// rolls counts how often all pods have been replaced.
	rolls atomic.Int64
}

// roll begins to replace the pods of the Deployment, until it is told to stop.
func (a *act) roll() *churn {
	ctx, stop := context.WithCancel(context.Background())
	c := &churn{act: a, stop: stop, done: make(chan struct{})}
	go c.run(ctx)
	a.after("stop the churn", func(context.Context) { c.end() })
	return c
}

// end stops the churn and waits until its last roll has ended or was given up.
func (c *churn) end() { c.stop(); <-c.done }

// run continues after a failed roll, because the API server is away now and then.
func (c *churn) run(ctx context.Context) {
	defer close(c.done)
	for n := 1; ctx.Err() == nil; n++ {
		err := attempt(func() {
			eventually(ctx, rollLimit, "a roll to begin", func(ctx context.Context) { c.rollOut(ctx, c.deployment(), n) })
			eventually(ctx, rollLimit, "a roll to end", func(ctx context.Context) { c.rolledOut(ctx, client.ObjectKeyFromObject(c.deployment())) })
		})
		if err == nil {
			c.rolls.Add(1)
		}
	}
}

// goesOn waits until a roll that began after this call has replaced all pods.
func (c *churn) goesOn(ctx context.Context) {
	before := c.rolls.Load()
	eventually(ctx, rollLimit, "all pods to be replaced", func(ctx context.Context) {
		const whole = 2 // the first to end had begun earlier
		if done := c.rolls.Load() - before; done < whole {
			fail("%d of %d rolls have ended, there are %s", done, whole, names(c.pods(ctx)))
		}
	})
}
