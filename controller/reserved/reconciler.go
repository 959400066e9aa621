// SPDX-License-Identifier: Apache-2.0

// Package reserved publishes the status of ReservedIPs: the entries that cannot be read, and the leases
// that still have a reserved address. A reservation takes no address from its holder.
package reserved

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/internal/poolset"
)

// interval is the shortest time between two passes over all leases.
const interval = time.Second

// lookEvery is the time between two looks for those for whom addresses are kept.
const lookEvery = 30 * time.Second

// Reconciler publishes the status of all reservations together, because one pass over the leases serves
// all of them. A lease may have an address of several reservations.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache, which has no virtual machines, and no labels of pods.
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock

	// watched has all reserved addresses of the last pass; it is nil before the first pass. A lease
	// of another address starts no pass.
	watched atomic.Pointer[poolset.Set]
	// next is the earliest time of the next pass. Passes do not run at the same time.
	next time.Time
	// asked remembers which objects exist that the cache does not have, by their names for people.
	asked map[string]answer
}

// Reconcile publishes the statuses that have changed.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	now := r.Clock.Now()
	if wait := r.next.Sub(now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	r.next = now.Add(interval)

	var reservations v1alpha1.ReservedIPList
	if err := r.Client.List(ctx, &reservations); err != nil {
		return ctrl.Result{}, fmt.Errorf("list reservations: %w", err)
	}
	facts, err := r.facts(ctx, reservations.Items, metav1.NewTime(now))
	if err != nil {
		return ctrl.Result{}, err
	}
	var result ctrl.Result
	var errs []error
	for _, f := range facts {
		err := r.publish(ctx, f)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			// The reservation has changed since it was read. Its event starts the next pass.
			result.RequeueAfter = interval
			continue
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	if result.RequeueAfter == 0 && slices.ContainsFunc(facts, func(f Facts) bool { return !f.Reservation.IsForNobody() }) {
		result.RequeueAfter = lookEvery // somebody may come or go
	}
	return result, nil
}

// facts sets watched before it lists the leases. A lease that is created in between is then in the list,
// or starts another pass.
func (r *Reconciler) facts(ctx context.Context, reservations []v1alpha1.ReservedIP, now metav1.Time) ([]Facts, error) {
	all := poolset.ReservedSet(reservations)
	r.watched.Store(&all)
	if len(reservations) == 0 {
		return nil, nil
	}
	var leases v1alpha1.IPLeaseList
	if err := r.Client.List(ctx, &leases, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var pools v1alpha1.IPPoolList
	if err := r.Client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	facts := make([]Facts, len(reservations))
	sets := make([]poolset.Set, len(reservations))
	for i := range reservations {
		facts[i] = Facts{Reservation: &reservations[i], Now: now}
		sets[i], facts[i].Invalid = poolset.ReservedBy(&reservations[i])
		facts[i].Invalid = errors.Join(facts[i].Invalid, outside(&reservations[i].Spec, pools.Items))
	}
	balancers, err := poolset.Balancers(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	contested := poolset.Contested(slices.Concat(reservations, balancers))
	for i, found := range match(sets, all, leases.Items) {
		facts[i].Leases = slices.DeleteFunc(found, func(l *v1alpha1.IPLease) bool { return poolset.IsKept(&reservations[i], l) })
		facts[i].Other = contested[i]
		if facts[i].Missing, facts[i].Unknown = r.missing(ctx, &reservations[i].Spec); facts[i].Unknown != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return facts, nil
}

// publish writes the status if it has changed.
func (r *Reconciler) publish(ctx context.Context, f Facts) error {
	status := Status(f)
	old := f.Reservation.Status
	if equality.Semantic.DeepEqual(old, status) {
		return nil
	}
	f.Reservation.Status = status
	if err := r.Client.Status().Update(ctx, f.Reservation); err != nil {
		return fmt.Errorf("publish status of reservation %s: %w", f.Reservation.Name, err)
	}
	for _, e := range condition.Events(old.Conditions, status.Conditions) {
		r.Events.Eventf(f.Reservation, nil, e.Type, e.Reason, "Publish", "%s", e.Note)
	}
	return nil
}

// match returns the leases of each reservation's addresses, in one pass over all leases. union has the
// addresses of all reservations, and rules most leases out with one search. The sets may overlap.
func match(sets []poolset.Set, union poolset.Set, leases []v1alpha1.IPLease) [][]*v1alpha1.IPLease {
	// reach is the greatest to up to a range, in the order of from.
	type ranged struct {
		from, to, reach netip.Addr
		set             int
	}
	var ranges []ranged
	for s := range sets {
		for ends := range slices.Chunk(sets[s].Ends(), 2) {
			ranges = append(ranges, ranged{ends[0], ends[1], ends[1], s})
		}
	}
	slices.SortFunc(ranges, func(a, b ranged) int { return a.from.Compare(b.from) })
	for i := 1; i < len(ranges); i++ {
		if ranges[i].reach.Less(ranges[i-1].reach) {
			ranges[i].reach = ranges[i-1].reach
		}
	}
	found := make([][]*v1alpha1.IPLease, len(sets))
	for i := range leases {
		a := leases[i].Spec.Addr()
		if !union.Contains(a) {
			continue
		}
		after := sort.Search(len(ranges), func(n int) bool { return a.Less(ranges[n].from) })
		for n := after - 1; n >= 0 && !ranges[n].reach.Less(a); n-- {
			if r := ranges[n]; !r.to.Less(a) {
				found[r.set] = append(found[r.set], &leases[i])
			}
		}
	}
	return found
}

// SetupWithManager registers the reconciler. All reservations share one request.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "reservations"}}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("reserved").
		Watches(&v1alpha1.ReservedIP{}, all, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, heard()))).
		Watches(&corev1.Service{}, all, builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return !equality.Semantic.DeepEqual(e.ObjectOld.(*corev1.Service).Status, e.ObjectNew.(*corev1.Service).Status)
		}})).
		Watches(&v1alpha1.IPLease{}, all, builder.WithPredicates(r.leaseOfReserved())).
		Complete(r)
}

// heard passes what agents record of the address of a machine.
func heard() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*v1alpha1.ReservedIP), e.ObjectNew.(*v1alpha1.ReservedIP)
		return is.Machine() != "" && !equality.Semantic.DeepEqual(was.Status.Speakers, is.Status.Speakers)
	}}
}

// leaseOfReserved passes the events of leases of reserved addresses that are created or deleted, or
// whose text in a message changes. The event of another lease costs a search in the set and no pass.
func (r *Reconciler) leaseOfReserved() predicate.Predicate {
	isReserved := func(o client.Object) bool {
		watched := r.watched.Load() // nil before the first pass, which lists all leases
		return watched != nil && watched.Contains(o.(*v1alpha1.IPLease).Spec.Addr())
	}
	return predicate.And(predicate.NewPredicateFuncs(isReserved), predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return wording(e.ObjectOld) != wording(e.ObjectNew)
	}})
}

// wording is the part of a lease that appears in a message.
func wording(o client.Object) string {
	return condition.Leases([]*v1alpha1.IPLease{o.(*v1alpha1.IPLease)})
}
