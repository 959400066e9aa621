// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/loop"
)

// Reconciler writes the index of each agent into an annotation of its pod.
type Reconciler struct {
	Client    client.Client
	Namespace string
}

// SetupWithManager registers the reconciler. All agents share one request, because an index depends
// on all of them.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: "agents"}}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("agents").
		WithOptions(controller.Options{RateLimiter: loop.Limiter()}).
		Watches(&podview.Pod{}, all, builder.WithPredicates(InNamespace(r.Namespace))).
		Complete(r)
}

// InNamespace passes events of agents' pods in the namespace.
func InNamespace(namespace string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		pod, ok := o.(*podview.Pod)
		return ok && pod.Namespace == namespace && IsAgent(pod)
	})
}

// Reconcile assigns an index to each agent that has none.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	pods, err := List(ctx, r.Client, r.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	assigned := Assign(pods)
	var errs []error
	for i := range pods {
		if n, ok := assigned[pods[i].UID]; ok {
			errs = append(errs, r.write(ctx, &pods[i], n))
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// write writes an index as a patch, because the cache does not hold the whole pod. The API server
// accepts it only for the version of the pod that was judged.
func (r *Reconciler) write(ctx context.Context, pod *podview.Pod, index int) error {
	written := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&written.ObjectMeta, v1alpha1.AnnotationAgentIndex, strconv.Itoa(index))
	err := r.Client.Patch(ctx, written, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The pod has changed, so another watch event follows.
		return nil
	}
	if err != nil {
		return fmt.Errorf("write index %d of agent %s: %w", index, pod.Name, err)
	}
	return nil
}
