// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/loop"
)

// workers is how many leases are reconciled at the same time. A reclaim waits for the API server
// most of the time, and the API server's own queues are fair to its other users.
const workers = 64

// SetupWithManager registers the reconciler, its watches and its audit.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, auditPeriod time.Duration) error {
	r.begin()
	woken := woken{cache: r.Reader.Cache, namespace: r.Reader.Namespace}
	audit := func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go r.audit(ctx, auditPeriod, queue.Add)
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
		Watches(&v1alpha1.ReservedIP{}, to(woken.withoutHolder), edited).
		WatchesRawSource(source.Func(audit)).
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
