// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/loop"
)

// SetupWithManager registers the reconciler. All IPSubnets share one request.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "subnets"}}}
	})
	namespaces := &metav1.PartialObjectMetadata{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	b := ctrl.NewControllerManagedBy(mgr).Named("subnet").
		WithOptions(controller.Options{RateLimiter: loop.Limiter()}).
		Watches(&v1alpha1.IPSubnet{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.IPPool{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ReservedIP{}, all, builder.WithPredicates(cache.ReservationChanges())).
		Watches(&corev1.Service{}, all, builder.WithPredicates(cache.ReservationChanges())).
		Watches(&v1alpha1.IPLease{}, all, builder.WithPredicates(r.leases())).
		Watches(&podview.Pod{}, all, builder.WithPredicates(asking())).
		Watches(namespaces, all, builder.WithPredicates(predicate.Or[client.Object](predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})))
	for _, o := range []client.Object{&appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &batchv1.Job{}, &batchv1.CronJob{}} {
		b = b.Watches(o, all, builder.WithPredicates(resized()))
	}
	return b.Complete(r)
}

// resized passes the changes of applications that the plan reads. The cache keeps only those fields
// and the identity.
func resized() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.DeepCopyObject().(client.Object), e.ObjectNew.DeepCopyObject().(client.Object)
		for _, o := range []client.Object{was, is} {
			o.SetResourceVersion("")
			o.SetGeneration(0)
		}
		return !equality.Semantic.DeepEqual(was, is)
	}}
}

// leases passes the leases of pools that the controller made, when they begin and end.
func (r *Reconciler) leases() predicate.Predicate {
	made := func(o client.Object) bool { return r.memory.hasMade(o.(*v1alpha1.IPLease)) }
	return predicate.And(predicate.NewPredicateFuncs(made), predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
}

// asking passes the pods that ask for addresses of IPSubnets, when they begin, finish and end, and when
// their annotations change.
func asking() predicate.Predicate {
	asks := func(o client.Object) bool {
		_, ok, _ := demand.Parse(o.(*podview.Pod).Annotations)
		return ok
	}
	finishes := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectNew.(*podview.Pod).IsFinished() && !e.ObjectOld.(*podview.Pod).IsFinished()
	}}
	return predicate.And(predicate.NewPredicateFuncs(asks), predicate.Or[client.Object](predicate.AnnotationChangedPredicate{}, finishes))
}
