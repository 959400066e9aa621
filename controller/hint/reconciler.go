// SPDX-License-Identifier: Apache-2.0

// Package hint keeps the hint of each node, which tells its agent of the leases that others have changed, and of
// addresses that came free while its ADDs wait for a full pool. An agent changes no hint by
// its own leases, with two exceptions: a Quarantined one, and the end of a lease of a pool for which nodes wait.
package hint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// workers is how many hints are written at the same time.
	workers = 16
	// gather is the time from the first change to the write, which tells of all changes of this time.
	gather = 10 * time.Millisecond
	// gatherEnds is the same for leases that a hint need not name any longer. It is not urgent: mostly the
	// verification of the node itself has ended them.
	gatherEnds = time.Second
	// gatherTaken is the time from the lease of an address for which nodes wait to the end of its offers.
	gatherTaken = 100 * time.Millisecond
	// pools is the namespace of the requests for a pass over a pool. That of hints is empty.
	pools = "pools"
)

// Reconciler writes the status of the hints.
type Reconciler struct {
	Client client.Client
	Clock  clock.PassiveClock

	waits *waits
	queue queue
	// leader is the ID of this controller.
	leader string
	mu     sync.Mutex
	// left has the leases that left a node since its hint was written, oldest first.
	left map[string][]v1alpha1.LeaseVersion
	// newest is the last write of a lease that was seen.
	newest v1alpha1.LeaseVersion
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.left, r.leader = map[string][]v1alpha1.LeaseVersion{}, string(uuid.NewUUID())
	r.waits = newWaits(r.Client, r.Clock)
	return ctrl.NewControllerManagedBy(mgr).
		Named("hints").
		For(&v1alpha1.LeaseHint{}).
		Watches(&v1alpha1.IPLease{}, r.ofLease()).
		Watches(&v1alpha1.IPPool{}, r.doubt(), builder.WithPredicates(cache.AddressChanges())).
		Watches(&v1alpha1.ReservedIP{}, r.doubt(), builder.WithPredicates(cache.ReservationChanges())).
		Watches(&corev1.Service{}, r.doubt(), builder.WithPredicates(cache.ReservationChanges())).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error { r.queue = q; return nil })).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: loop.Limiter()}).
		Complete(r)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// doubt has the free addresses of all pools looked for again for which nodes wait.
func (r *Reconciler) doubt() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) (all []reconcile.Request) {
		for _, pool := range r.waits.doubt() {
			all = append(all, requestOf(pools, pool))
		}
		return all
	})
}

// ofLease finds the hints that a change of a lease concerns.
func (r *Reconciler) ofLease() handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			l := e.Object.(*v1alpha1.IPLease)
			if r.isOld(l) && !e.IsInInitialList {
				r.leave(l.Spec.NodeName, versionOf(l), q)
			}
			if !e.IsInInitialList && r.waits.isAwaited(l.Spec.Pool) {
				q.AddAfter(requestOf(pools, l.Spec.Pool), gatherTaken)
			}
			r.changed(nil, l, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			was, l := e.ObjectOld.(*v1alpha1.IPLease), e.ObjectNew.(*v1alpha1.IPLease)
			if was.ResourceVersion == l.ResourceVersion {
				return
			}
			if r.isOld(l) {
				r.leave(l.Spec.NodeName, versionOf(l), q)
			}
			r.changed(was, l, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			l := e.Object.(*v1alpha1.IPLease)
			if r.waits.freed(l) {
				q.AddAfter(requestOf(pools, l.Spec.Pool), gather)
			}
			r.deleted(l, e.DeleteStateUnknown, q)
		},
	}
}

func (r *Reconciler) changed(was, now *v1alpha1.IPLease, q queue) {
	if was != nil && isNote(was, now) {
		return
	}
	if now.Spec.State == v1alpha1.StateQuarantined && now.Spec.Reason == v1alpha1.ReasonMigrated {
		wake(q, 0, now.Spec.NodeName) // the virtual machine is mute meanwhile
	}
	wake(q, gather, concerned(now)...)
	if was != nil {
		r.leave(leaves(was, now), versionOf(now), q)
		wake(q, gatherEnds, concerned(was)...)
	}
}

// isOld reports whether a lease was written before one that was seen already: it comes from a list after a lost
// watch, also if a store that was restored from a backup has it as it was before.
func (r *Reconciler) isOld(l *v1alpha1.IPLease) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if byVersion(versionOf(l), r.newest) < 0 {
		return true
	}
	r.newest = versionOf(l)
	return false
}

// deleted handles the end of a lease. unseen: a list after a lost watch lacks it, and anybody may have ended it.
func (r *Reconciler) deleted(was *v1alpha1.IPLease, unseen bool, q queue) {
	node := leaves(was, nil)
	if unseen {
		node = was.Spec.NodeName
	}
	r.leave(node, versionOf(was), q)
	wake(q, gatherEnds, concerned(was)...)
}

// wake has the hints of nodes looked at after a time, or before it if they are waited for already.
func wake(q queue, after time.Duration, nodes ...string) {
	for _, node := range nodes {
		q.AddAfter(requestOf("", node), after)
	}
}

func requestOf(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// leave records that a lease left a node. An empty node has no hint.
func (r *Reconciler) leave(node string, l v1alpha1.LeaseVersion, q queue) {
	if node == "" {
		return
	}
	r.mu.Lock()
	r.left[node] = append(r.left[node], l)
	r.mu.Unlock()
	wake(q, gather, node)
}

// take returns the leases that left a node, and forgets them.
func (r *Reconciler) take(node string) []v1alpha1.LeaseVersion {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.left[node]
	delete(r.left, node)
	return left
}

// putBack records leases again that were taken.
func (r *Reconciler) putBack(node string, left []v1alpha1.LeaseVersion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := slices.Concat(left, r.left[node]); len(all) > 0 {
		r.left[node] = all
	}
}

// Reconcile writes the hint of a node if it has changed, or makes a pass over a pool. A node whose agent has no hint
// yet needs none.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	node := request.Name
	if request.Namespace == pools {
		changed, next, err := r.waits.pass(ctx, request.Name)
		wake(r.queue, 0, changed...)
		return ctrl.Result{RequeueAfter: next}, err
	}
	left := r.take(node)
	old := &v1alpha1.LeaseHint{}
	err := r.Client.Get(ctx, request.NamespacedName, old)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	for _, pool := range r.waits.ask(node, old.Spec) {
		r.queue.Add(requestOf(pools, pool))
	}
	if err != nil {
		return ctrl.Result{}, nil //nolint:nilerr // there is no hint
	}
	var leases v1alpha1.IPLeaseList
	if err := r.Client.List(ctx, &leases, client.UnsafeDisableDeepCopy, client.MatchingFields{cache.LeasesByNode: node}); err != nil {
		r.putBack(node, left)
		return ctrl.Result{}, fmt.Errorf("list the leases of node %s: %w", node, err)
	}
	hint := old.DeepCopy()
	hint.Status = Next(old, r.leader, leases.Items, left)
	hint.Status.Wanted = r.waits.wantedOf(node)
	if round, free, known := r.waits.answer(node); known {
		hint.Status.Round, hint.Status.Free = cmp.Or(round, old.Status.Round), free
	}
	if equality.Semantic.DeepEqual(old.Status, hint.Status) {
		return ctrl.Result{}, nil
	}
	if hint.Status.Start != old.Status.Start {
		old.Status.Leases = []v1alpha1.LeaseVersion{{}} // so that the patch replaces the last answer
	}
	// The patch has the fields that differ, since the others of the answer are not in the cache. It is for the
	// version that was read: a cache that lacks the last patch would undo it.
	err = r.Client.Status().Patch(ctx, hint, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		r.putBack(node, left)
		return ctrl.Result{RequeueAfter: gather}, nil
	}
	if err != nil {
		r.putBack(node, left)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, nil
}
