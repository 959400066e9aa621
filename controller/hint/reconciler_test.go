// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"context"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// TestWhatAListShowsAfterALostWatch: nobody has seen the changes, and a restored store has leases as they were before.
func TestWhatAListShowsAfterALostWatch(t *testing.T) {
	const bound = v1alpha1.StateBound
	l := func(version int) *v1alpha1.IPLease { return leaseOf("a", version, bound, "n1") }
	created := func(l *v1alpha1.IPLease, first bool) any { return event.CreateEvent{Object: l, IsInInitialList: first} }
	updated := func(was, now *v1alpha1.IPLease) any { return event.UpdateEvent{ObjectOld: was, ObjectNew: now} }
	deleted := func(l *v1alpha1.IPLease, unseen bool) any {
		return event.DeleteEvent{Object: l, DeleteStateUnknown: unseen}
	}
	for name, c := range map[string]struct {
		event any
		tells bool
	}{
		"a lease of the first list":           {created(l(5), true), false},
		"an ADD":                              {created(l(11), false), false},
		"a lease that a restore brought back": {created(l(5), false), true},
		"a write":                             {updated(l(10), l(11)), false},
		"a lease as it was before":            {updated(l(10), l(5)), true},
		"the same again":                      {updated(l(5), l(5)), false},
		"a DEL":                               {deleted(l(5), false), false},
		"a lease that the store has lost, or a late DEL": {deleted(l(5), true), true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{left: map[string][]v1alpha1.LeaseVersion{}, newest: versions("b", "10")[0], waits: newWaits(nil, clock.RealClock{})}
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer q.ShutDown()
			h := r.ofLease()
			switch e := c.event.(type) {
			case event.CreateEvent:
				h.Create(context.Background(), e, q)
			case event.UpdateEvent:
				h.Update(context.Background(), e, q)
			case event.DeleteEvent:
				h.Delete(context.Background(), e, q)
			}
			check.Equal(t, len(r.left["n1"]) == 1, c.tells, "it tells n1:")
		})
	}
}
