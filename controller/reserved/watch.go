// SPDX-License-Identifier: Apache-2.0

package reserved

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
)

// SetupWithManager registers the reconciler. All reservations share one request.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "reservations"}}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("reserved").
		Watches(&v1alpha1.ReservedIP{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.IPLease{}, all, builder.WithPredicates(r.leaseOfReserved())).
		Complete(r)
}

// leaseOfReserved passes the events of leases of reserved addresses that are created or deleted, or
// whose text in a message changes. The event of another lease costs a search in the set and no pass.
func (r *Reconciler) leaseOfReserved() predicate.Predicate {
	isReserved := func(o client.Object) bool {
		watched := r.watched.Load()
		if watched == nil {
			// The first pass lists all leases.
			return false
		}
		return watched.Contains(o.(*v1alpha1.IPLease).Spec.Addr())
	}
	return predicate.And(predicate.NewPredicateFuncs(isReserved), predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return wording(e.ObjectOld) != wording(e.ObjectNew)
	}})
}

// wording is the part of a lease that appears in a message.
func wording(o client.Object) string {
	return condition.Leases([]*v1alpha1.IPLease{o.(*v1alpha1.IPLease)})
}
