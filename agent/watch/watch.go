// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/loop"
)

// parallelVerifications bounds the leases of a node that are verified at the same
// time. The segment paces their frames.
const parallelVerifications = 32

// Watchers are the parts of the agent that handle changes.
type Watchers struct {
	// Verifier verifies a Quarantined lease of this node.
	Verifier reconcile.Reconciler
	// LeaseChanged handles a lease of this node that others changed, or that left the node.
	LeaseChanged func(name string)
	// WarmChanged handles a change that may alter which leases are kept Warm.
	WarmChanged func()
	// WaitChanged handles a change that may concern the ADDs that wait for an address of a full pool.
	WaitChanged func()
	// SetNetworks gives the numbers of this cluster's networks to the kernel. A failure is retried.
	SetNetworks func([]uint64) error
	// PoolChanged handles a change of the spec of a pool.
	PoolChanged func()
	// VirtualChanged handles a change of a virtual address, or of the labels of a pod.
	VirtualChanged func()
	// SpeakerChanged handles a change of a virtual address, or of its status.
	SpeakerChanged func()
	// BalancerChanged handles a change of a Service of type LoadBalancer.
	BalancerChanged func()
	// ClaimKey reads the Secret of the claim key.
	ClaimKey reconcile.Reconciler
}

func typeOf(o client.Object) []string { return []string{string(o.(*corev1.Service).Spec.Type)} }

// Start has the manager run the watches. cluster is the UID of the kube-system namespace. leases are those of
// this node, and hints fills them.
func Start(mgr ctrl.Manager, cluster string, leases *Client, hints *Hints, w Watchers) error {
	return errors.Join(
		mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Service{}, "spec.type", typeOf),
		pools(mgr, cluster, w.SetNetworks, w.PoolChanged),
		builder.ControllerManagedBy(mgr).Named("claim-key").For(&corev1.Secret{}).Complete(w.ClaimKey),
		builder.ControllerManagedBy(mgr).Named("verify").
			WatchesRawSource(changes(leases.Leases, about(v1alpha1.StateQuarantined))).
			Watches(&v1alpha1.IPPool{}, handler.EnqueueRequestsFromMapFunc(ignored(leases)),
				builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			WithOptions(controller.Options{MaxConcurrentReconciles: parallelVerifications}).
			Complete(w.Verifier),
		builder.ControllerManagedBy(mgr).Named("hints").For(&v1alpha1.LeaseHint{}).
			WithOptions(controller.Options{RateLimiter: loop.Limiter()}).
			WatchesRawSource(source.Func(hints.wake)).
			Complete(hints),
		holders(mgr, leases.Leases, w.LeaseChanged),
		warm(mgr, leases, w.WarmChanged),
		waits(mgr, leases.reservations, w.WaitChanged),
		virtuals(mgr, leases.reservations, w.VirtualChanged, w.SpeakerChanged),
		builder.ControllerManagedBy(mgr).Named("balancers").Watches(&corev1.Service{}, one()).
			Complete(call(func(string) { w.BalancerChanged() })),
	)
}

// queue is the queue of a controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// changes is a source of the names of leases of this node whose change passes.
func changes(leases *lease.View, passes func(was, now *v1alpha1.IPLease) bool) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		leases.Tell(func(was, now *v1alpha1.IPLease) {
			if passes(was, now) {
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: cmp.Or(now, was).Name}})
			}
		})
		return nil
	})
}

// holders reports each lease of this node that another process changed, or that left the node. It has its
// own queue, because the work in the verifier's queue takes long.
func holders(mgr ctrl.Manager, leases *lease.View, changed func(name string)) error {
	return builder.ControllerManagedBy(mgr).Named("holders").
		WatchesRawSource(changes(leases, madeByOthers)).
		Complete(call(changed))
}

// warm reports changes of the objects that decide which leases are kept Warm.
func warm(mgr ctrl.Manager, of *Client, changed func()) error {
	b := builder.ControllerManagedBy(mgr).Named("warm").
		WatchesRawSource(changes(of.Leases, about(v1alpha1.StateWarm))).
		WatchesRawSource(of.reservations.changes(respecified))
	for _, o := range []client.Object{&v1alpha1.IPPool{}, &corev1.Node{}} {
		b = b.Watches(o, one())
	}
	b = b.Watches(&corev1.Service{}, one(), builder.WithPredicates(balanced()))
	return b.Complete(call(func(string) { changed() }))
}

// waits reports the changes that matter to waiting ADDs: pools that open or close, reasons why a
// pool is not made yet, and pods that end.
func waits(mgr ctrl.Manager, reservations *Reservations, changed func()) error {
	b := builder.ControllerManagedBy(mgr).Named("waits").
		Watches(&v1alpha1.IPPool{}, one(), builder.WithPredicates(opensOrCloses())).
		WatchesRawSource(reservations.changes(respecified)).
		Watches(&corev1.Service{}, one(), builder.WithPredicates(balanced())).
		Watches(&v1alpha1.IPSubnet{}, one(), builder.WithPredicates(explains())).
		Watches(&corev1.Node{}, one(), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.Pod{}, one(), builder.WithPredicates(ending()))
	return b.Complete(call(func(string) { changed() }))
}

// balanced passes changes of the addresses of a load balancer.
func balanced() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.Service), e.ObjectNew.(*corev1.Service)
		return !equality.Semantic.DeepEqual(was.Status.LoadBalancer, is.Status.LoadBalancer)
	}}
}

// virtuals reports the changes by which a pod may speak for another virtual address, and who speaks.
func virtuals(mgr ctrl.Manager, reservations *Reservations, changed, speaks func()) error {
	return errors.Join(
		builder.ControllerManagedBy(mgr).Named("virtuals").
			WatchesRawSource(reservations.changes(judged)).
			Watches(&corev1.Pod{}, one(), builder.WithPredicates(predicate.LabelChangedPredicate{})).
			Complete(call(func(string) { changed() })),
		builder.ControllerManagedBy(mgr).Named("speakers").
			WatchesRawSource(reservations.changes(spoken)).
			Complete(call(func(string) { speaks() })),
	)
}

// call calls a function with the name of each request.
func call(changed func(name string)) reconcile.Func {
	return func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
		changed(r.Name)
		return reconcile.Result{}, nil
	}
}

// opensOrCloses passes the changes of pools that an ADD may see, other than the counts of leases.
func opensOrCloses() predicate.Predicate {
	ready := func(o client.Object) bool {
		return !meta.IsStatusConditionFalse(o.(*v1alpha1.IPPool).Status.Conditions, v1alpha1.ConditionReady)
	}
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return ready(e.ObjectOld) != ready(e.ObjectNew) },
	})
}

// explains passes the changes of the spec of IPSubnets, and of why applications lack addresses.
func explains() predicate.Predicate {
	reasons := func(o client.Object) []v1alpha1.Unserved { return o.(*v1alpha1.IPSubnet).Status.Unserved }
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !equality.Semantic.DeepEqual(reasons(e.ObjectOld), reasons(e.ObjectNew))
		},
	})
}

// ending passes the pods that begin to end, or are gone.
func ending() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil
		},
	}
}

// pools gives the networks of all pools to the kernel whenever a pool changes, and reports the change.
func pools(mgr ctrl.Manager, cluster string, set func([]uint64) error, changed func()) error {
	return builder.ControllerManagedBy(mgr).Named("networks").
		Watches(&v1alpha1.IPPool{}, one(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			changed()
			pools := &v1alpha1.IPPoolList{}
			if err := mgr.GetClient().List(ctx, pools); err != nil {
				return reconcile.Result{}, fmt.Errorf("list pools: %w", err)
			}
			return reconcile.Result{}, set(networks(cluster, pools.Items))
		}))
}

// ignored maps a pool to its leases that are Quarantined for a MAC that the pool ignores.
func ignored(leases client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) (all []reconcile.Request) {
		pool, list := o.(*v1alpha1.IPPool), &v1alpha1.IPLeaseList{}
		if err := leases.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil // they are not read yet, so the leases are new to the verifier as well
		}
		for i := range list.Items {
			if l := &list.Items[i]; l.Spec.Pool == pool.Name && pool.IgnoresMAC(l.Spec.ConflictMAC()) {
				all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(l)})
			}
		}
		return all
	}
}

// one maps every object to the same request, so that changes are handled together.
func one() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
}

// madeByOthers passes the changes that no ADD of this node wrote. A lease that is
// new here either was created by an ADD, or is assigned to this node for a verification.
func madeByOthers(was, now *v1alpha1.IPLease) bool {
	switch {
	case was == nil:
		return now.Spec.State == v1alpha1.StateQuarantined
	case now == nil:
		return true
	default:
		return was.Spec.State != v1alpha1.StateWarm || now.Spec.State != v1alpha1.StateBound || was.UID != now.UID
	}
}

// about passes the changes of leases that are or were in a state.
func about(state v1alpha1.LeaseState) func(was, now *v1alpha1.IPLease) bool {
	return func(was, now *v1alpha1.IPLease) bool {
		return was != nil && was.Spec.State == state || now != nil && now.Spec.State == state
	}
}

// networks returns the numbers that claims of this cluster carry as their network, each once.
func networks(cluster string, pools []v1alpha1.IPPool) []uint64 {
	all := []uint64{}
	for i := range pools {
		if n := claim.Network(cluster, pools[i].Spec.Network); !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}
