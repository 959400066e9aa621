// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/poolset"
)

// workers is how many leases are reconciled at the same time. A reclaim waits for the API server
// most of the time, and the API server's own queues are fair to its other users.
const workers = 64

// SetupWithManager registers the reconciler, its watches and its audit.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, auditPeriod time.Duration) error {
	r.begin()
	woken := woken{Reader: r.Reader, appeared: loop.NewWake()}
	background := func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		machines := follower{
			clock: r.Reader.Clock, open: map[string]bool{},
			watch: func(ctx context.Context, h *v1alpha1.Holder, changed func()) error {
				return r.Reader.Owners.FollowMigration(ctx, h, watchLimit, changed)
			},
			wake: func(ctx context.Context, h *v1alpha1.Holder) {
				for _, request := range woken.ofHolder(ctx, cache.IdentityKey(h), nil) {
					queue.Add(request)
				}
			},
		}
		r.follow = func(h *v1alpha1.Holder) bool { return machines.follow(ctx, h) }
		go r.audit(ctx, auditPeriod, queue.Add)
		go r.giveTurns(ctx, queue.Add)
		waiting := loop.Loop{Clock: r.Reader.Clock, Period: auditPeriod, Later: true, Wake: woken.appeared, Gather: time.Second}
		go func() {
			_ = waiting.Every(ctx, func(ctx context.Context) { // it ends with ctx
				for _, request := range woken.ofAppearance(ctx) {
					queue.Add(request)
				}
			})
		}()
		return nil
	}
	to := handler.EnqueueRequestsFromMapFunc
	edited := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("reclaim").
		Watches(&v1alpha1.IPLease{}, to(woken.ofLease)).
		Watches(&podview.Pod{}, to(woken.ofPod), builder.WithPredicates(podChanges())).
		Watches(&corev1.Node{}, to(woken.ofNode), builder.WithPredicates(nodeChanges())).
		Watches(&appsv1.StatefulSet{}, to(woken.ofStatefulSet)).
		Watches(&v1alpha1.IPPool{}, to(woken.ofPool), edited).
		Watches(&v1alpha1.ReservedIP{}, to(woken.ofReservation), edited).
		Watches(&corev1.Service{}, to(woken.withoutHolder), builder.WithPredicates(cache.ReservationChanges())).
		WatchesRawSource(source.Func(background)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: loop.Limiter()}).
		Complete(r)
}

// podChanges passes changes of the fields that Decide reads in a pod and in an agent's pod.
func podChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*podview.Pod), e.ObjectNew.(*podview.Pod)
		return was.UID != is.UID || was.StatusOrEmpty().Phase != is.StatusOrEmpty().Phase || was.Spec.NodeName != is.Spec.NodeName ||
			!was.DeletionTimestamp.Equal(is.DeletionTimestamp) || isForceDeleted(was) != isForceDeleted(is) ||
			(agents.IsAgent(is) && agents.IsAlive(was) != agents.IsAlive(is))
	}}
}

// nodeChanges passes changes of the fields that Decide reads in a node.
func nodeChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return was.UID != is.UID || agents.IsReady(was) != agents.IsReady(is) || isOutOfService(was) != isOutOfService(is)
	}}
}

// woken finds the leases about which an event may change the decision.
type woken struct {
	Reader
	// appeared is woken when a node and its agent may have begun to work.
	appeared loop.Wake
}

// ofLease returns a lease. If it is settled, it may be the successor of each Retained lease of the same
// pod name or virtual machine, so ofLease returns these too.
func (w woken) ofLease(ctx context.Context, o client.Object) []reconcile.Request {
	lease := o.(*v1alpha1.IPLease)
	requests := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(lease)}}
	if isSettled(&lease.Spec) {
		requests = append(requests, w.ofHolder(ctx, cache.IdentityKey(lease.Spec.Holder), isRetained)...)
	}
	return requests
}

func isRetained(s *v1alpha1.IPLeaseSpec) bool { return s.State == v1alpha1.StateRetained }

func (w woken) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	pod := o.(*podview.Pod)
	if pod.Namespace == w.Namespace && agents.IsAgent(pod) {
		// An agent verifies Quarantined leases and keeps the Warm leases of its node.
		return w.onNode(ctx, pod.Spec.NodeName)
	}
	requests := w.ofHolder(ctx, cache.PodKey(pod.Namespace, pod.Name), nil)
	for _, key := range cache.MachineKeys(pod) {
		requests = append(requests, w.ofHolder(ctx, key, nil)...)
	}
	return requests
}

func (w woken) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	return w.onNode(ctx, o.GetName())
}

// onNode returns the leases of a node, of a previous holder on it, and those that it verifies. If the node works now,
// others may have waited for it.
func (w woken) onNode(ctx context.Context, node string) []reconcile.Request {
	if w.isAlive(ctx, node) {
		w.appeared.Up()
	}
	return w.at(ctx, cache.LeasesByNode, node, nil)
}

// ofAppearance returns the leases that wait for any node to verify them: their verifier is not alive.
func (w woken) ofAppearance(ctx context.Context) []reconcile.Request {
	return w.at(ctx, cache.LeasesByState, string(v1alpha1.StateQuarantined), func(s *v1alpha1.IPLeaseSpec) bool {
		return !w.isAlive(ctx, s.NodeName)
	})
}

func (w woken) ofStatefulSet(ctx context.Context, o client.Object) []reconcile.Request {
	return w.at(ctx, cache.LeasesByOwner, cache.PodKey(o.GetNamespace(), o.GetName()), nil)
}

func (w woken) ofPool(ctx context.Context, o client.Object) []reconcile.Request {
	return append(w.at(ctx, cache.LeasesByPool, o.GetName(), nil), w.withoutHolder(ctx, o)...)
}

// withoutHolder returns the leases that end when no pool hands out their addresses. Each pool may
// be the last one that does.
func (w woken) withoutHolder(ctx context.Context, _ client.Object) []reconcile.Request {
	return w.at(ctx, cache.LeasesByState, string(v1alpha1.StateQuarantined), hadNoHolder)
}

// ofReservation returns the leases that a reservation may end.
func (w woken) ofReservation(ctx context.Context, o client.Object) []reconcile.Request {
	set, _ := poolset.ReservedBy(o.(*v1alpha1.ReservedIP))
	return append(w.withoutHolder(ctx, o), w.at(ctx, cache.LeasesByState, string(v1alpha1.StateRetained), func(s *v1alpha1.IPLeaseSpec) bool {
		return set.Contains(s.Addr())
	})...)
}

// at returns the leases under a key of an index. want selects among them; nil selects all.
func (w woken) at(ctx context.Context, index, key string, want func(*v1alpha1.IPLeaseSpec) bool) []reconcile.Request {
	var leases v1alpha1.IPLeaseList
	err := w.Cache.List(ctx, &leases, client.UnsafeDisableDeepCopy, client.MatchingFields{index: key})
	return requestsFor(ctx, leases.Items, err, want)
}

// ofHolder is like at, with a key of cache.LeasesOf.
func (w woken) ofHolder(ctx context.Context, key string, want func(*v1alpha1.IPLeaseSpec) bool) []reconcile.Request {
	leases, err := cache.LeasesOf(ctx, w.Cache, key)
	return requestsFor(ctx, leases, err, want)
}

func requestsFor(ctx context.Context, leases []v1alpha1.IPLease, err error, want func(*v1alpha1.IPLeaseSpec) bool) []reconcile.Request {
	if err != nil {
		// The cache fails only while it stops. The next leader looks at all leases.
		log.FromContext(ctx).Error(err, "list leases")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(leases))
	for i := range leases {
		if want == nil || want(&leases[i].Spec) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: leases[i].Name}})
		}
	}
	return requests
}
