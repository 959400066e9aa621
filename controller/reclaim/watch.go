// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/controller/retry"
)

// workers is how many leases are reconciled at the same time. A reclaim is a live read and a write,
// so it waits for the API server most of the time. The API server's own queues are fair to its
// other users.
const workers = 64

// SetupWithManager registers the reconciler, its watches and its audit.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, auditPeriod time.Duration) error {
	r.begin()
	audited := make(chan event.TypedGenericEvent[*v1alpha1.IPLease])
	wake := func(ctx context.Context, lease *v1alpha1.IPLease) error {
		select {
		case audited <- event.TypedGenericEvent[*v1alpha1.IPLease]{Object: lease}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return r.audit(ctx, auditPeriod, wake) }))
	if err != nil {
		return fmt.Errorf("add the audit of all leases: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("reclaim").
		For(&v1alpha1.IPLease{}).
		Watches(&v1alpha1.IPLease{}, handler.EnqueueRequestsFromMapFunc(r.leasesOfName), builder.WithPredicates(successions())).
		Watches(&podview.Pod{}, handler.EnqueueRequestsFromMapFunc(r.leasesOfPod), builder.WithPredicates(podChanges())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.leasesOfNode), builder.WithPredicates(nodeChanges())).
		Watches(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(r.leasesOfStatefulSet)).
		Watches(&v1alpha1.IPPool{}, handler.EnqueueRequestsFromMapFunc(r.leasesOfPool),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ReservedIP{}, handler.EnqueueRequestsFromMapFunc(r.leasesWithoutHolder),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(audited, &handler.TypedEnqueueRequestForObject[*v1alpha1.IPLease]{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(r)
}

// podChanges passes changes of the fields that Decide reads in a pod and in an agent's pod.
func podChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*podview.Pod), e.ObjectNew.(*podview.Pod)
		return was.UID != is.UID || was.Status.Phase != is.Status.Phase ||
			was.Spec.NodeName != is.Spec.NodeName ||
			!was.DeletionTimestamp.Equal(is.DeletionTimestamp) || isForceDeleted(was) != isForceDeleted(is) ||
			(agents.IsAgent(is) && agents.IsAlive(was) != agents.IsAlive(is))
	}}
}

// nodeChanges passes changes of the fields that Decide reads in a node.
func nodeChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return was.UID != is.UID || isReady(was) != isReady(is) || isOutOfService(was) != isOutOfService(is)
	}}
}

// leasesOfName returns the Retained leases of the same pod name or virtual machine. A lease may be the successor of each
// of them.
func (r *Reconciler) leasesOfName(ctx context.Context, o client.Object) []reconcile.Request {
	holder := o.(*v1alpha1.IPLease).Spec.Holder
	if holder == nil {
		return nil // an update also maps the old lease, which may have been Warm
	}
	return r.leasesOfHolder(ctx, isRetained, cache.IdentityKey(holder))
}

func isAny(*v1alpha1.IPLeaseSpec) bool { return true }

func isRetained(s *v1alpha1.IPLeaseSpec) bool { return s.State == v1alpha1.StateRetained }

func (r *Reconciler) leasesOfPod(ctx context.Context, o client.Object) []reconcile.Request {
	pod := o.(*podview.Pod)
	if pod.Namespace == r.Namespace && agents.IsAgent(pod) {
		// An agent verifies Quarantined leases and keeps the Warm leases of its node.
		return append(r.leases(ctx, cache.LeasesByState, string(v1alpha1.StateQuarantined)),
			r.leases(ctx, cache.LeasesByNode, pod.Spec.NodeName)...)
	}
	requests := r.leasesOfHolder(ctx, isAny, cache.PodKey(pod.Namespace, pod.Name))
	for _, key := range cache.MachineKeys(pod) {
		requests = append(requests, r.leasesOfHolder(ctx, isAny, key)...)
	}
	return requests
}

func (r *Reconciler) leasesOfNode(ctx context.Context, o client.Object) []reconcile.Request {
	requests := r.leases(ctx, cache.LeasesByNode, o.GetName())
	return append(requests, r.leases(ctx, cache.LeasesByState, string(v1alpha1.StateQuarantined))...)
}

func (r *Reconciler) leasesOfStatefulSet(ctx context.Context, o client.Object) []reconcile.Request {
	return r.leases(ctx, cache.LeasesByOwner, cache.PodKey(o.GetNamespace(), o.GetName()))
}

func (r *Reconciler) leasesOfPool(ctx context.Context, o client.Object) []reconcile.Request {
	return append(r.leases(ctx, cache.LeasesByPool, o.GetName()), r.leasesWithoutHolder(ctx, o)...)
}

// leasesWithoutHolder returns the leases that end when no pool hands out their addresses. Each pool may
// be the last one that does.
func (r *Reconciler) leasesWithoutHolder(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.leasesThat(ctx, hadNoHolder, cache.LeasesByState, string(v1alpha1.StateQuarantined))
}

func (r *Reconciler) leases(ctx context.Context, index, key string) []reconcile.Request {
	return r.leasesThat(ctx, isAny, index, key)
}

func (r *Reconciler) leasesThat(ctx context.Context, want func(*v1alpha1.IPLeaseSpec) bool, index, key string) []reconcile.Request {
	var leases v1alpha1.IPLeaseList
	err := r.Client.List(ctx, &leases, client.UnsafeDisableDeepCopy, client.MatchingFields{index: key})
	if err != nil {
		// The cache fails only while it stops. The next leader looks at all leases.
		log.FromContext(ctx).Error(err, "list leases", "index", index, "key", key)
		return nil
	}
	return requestsFor(leases.Items, want)
}

// leasesOfHolder is leasesThat for a key of cache.LeasesOf.
func (r *Reconciler) leasesOfHolder(ctx context.Context, want func(*v1alpha1.IPLeaseSpec) bool, key string) []reconcile.Request {
	leases, err := cache.LeasesOf(ctx, r.Client, key)
	if err != nil {
		// As in leasesThat.
		log.FromContext(ctx).Error(err, "list the leases of a holder")
		return nil
	}
	return requestsFor(leases, want)
}

func requestsFor(leases []v1alpha1.IPLease, want func(*v1alpha1.IPLeaseSpec) bool) []reconcile.Request {
	requests := make([]reconcile.Request, 0, len(leases))
	for i := range leases {
		if want(&leases[i].Spec) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: leases[i].Name}})
		}
	}
	return requests
}
