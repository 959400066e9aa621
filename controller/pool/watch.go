// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/loop"
)

// workers is the number of pools that are reconciled at the same time.
const workers = 4

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.notes = newNotes()
	to := handler.EnqueueRequestsFromMapFunc
	all := to(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return r.pools(ctx, func(*v1alpha1.IPPool) bool { return true })
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("pool").
		// A large pool must not delay another pool for which a node waits.
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: loop.Limiter()}).
		// A write of the status starts no pass. The generation changes with the spec and with the
		// deletion.
		For(&v1alpha1.IPPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.IPLease{}, r.leaseEvents()).
		// An overlap with another pool may begin or end.
		Watches(&v1alpha1.IPPool{}, to(r.neighbours), builder.WithPredicates(cache.AddressChanges())).
		Watches(&v1alpha1.ReservedIP{}, all, builder.WithPredicates(cache.ReservationChanges())).
		Watches(&corev1.Service{}, all, builder.WithPredicates(cache.ReservationChanges())).
		Watches(&corev1.Node{}, to(r.poolsByLabels), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&podview.Pod{}, all, builder.WithPredicates(agents.InNamespace(r.Namespace), agentChanges())).
		Complete(r)
}

// leaseEvents requests a pass over the pool of a lease, and records an address that was freed.
func (r *Reconciler) leaseEvents() handler.EventHandler {
	wake := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.(*v1alpha1.IPLease).Spec.Pool}}}
	})
	return handler.Funcs{
		CreateFunc: wake.Create, UpdateFunc: wake.Update,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			lease := e.Object.(*v1alpha1.IPLease)
			// No host has used a Warm address, so no neighbour cache has it.
			if a := lease.Spec.Addr(); a.IsValid() && lease.Spec.State != v1alpha1.StateWarm {
				r.notes.cool(lease.Spec.Pool, a, r.Clock.Now())
			}
			wake.Delete(ctx, e, q)
		},
	}
}

// agentChanges passes the events of agents that are created or deleted, or get an index or a node.
func agentChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*podview.Pod), e.ObjectNew.(*podview.Pod)
		return was.Annotations[v1alpha1.AnnotationAgentIndex] != is.Annotations[v1alpha1.AnnotationAgentIndex] ||
			was.Spec.NodeName != is.Spec.NodeName
	}}
}

// neighbours returns the other pools that may have an address of a pool.
func (r *Reconciler) neighbours(ctx context.Context, o client.Object) []reconcile.Request {
	pool := o.(*v1alpha1.IPPool)
	return r.pools(ctx, func(other *v1alpha1.IPPool) bool { return other.Name != pool.Name && mayOverlap(pool, other) })
}

// poolsByLabels returns the pools that depend on the labels of nodes.
func (r *Reconciler) poolsByLabels(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.pools(ctx, asksForLabels)
}

func (r *Reconciler) pools(ctx context.Context, want func(*v1alpha1.IPPool) bool) []reconcile.Request {
	var pools v1alpha1.IPPoolList
	if err := r.Client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		// The cache fails only while it stops. The next leader publishes all pools.
		log.FromContext(ctx).Error(err, "list pools")
		return nil
	}
	var requests []reconcile.Request
	for i := range pools.Items {
		if want(&pools.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: pools.Items[i].Name}})
		}
	}
	return requests
}
