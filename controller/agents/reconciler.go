// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// index returns an agent's index. It reports whether the agent has a valid one.
func index(pod *podview.Pod) (int, bool) {
	i, err := strconv.Atoi(pod.Annotations[v1alpha1.AnnotationAgentIndex])
	return i, err == nil && i >= 0
}

// Assign returns the indexes to write, by the UID of the pod: the lowest unused index for each agent
// without one. If two agents have the same index, the older agent keeps it. Other indexes never
// change, because a new index makes its agent try another share of every pool first.
func Assign(pods []podview.Pod) map[types.UID]int {
	byAge := make([]*podview.Pod, len(pods))
	for i := range pods {
		byAge[i] = &pods[i]
	}
	slices.SortFunc(byAge, func(a, b *podview.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})

	used := map[int]bool{}
	var without []*podview.Pod
	for _, pod := range byAge {
		if i, ok := index(pod); ok && !used[i] {
			used[i] = true
			continue
		}
		without = append(without, pod)
	}
	assigned := map[types.UID]int{}
	next := 0
	for _, pod := range without {
		for used[next] {
			next++
		}
		used[next] = true
		assigned[pod.UID] = next
	}
	return assigned
}

// Shares returns the number of shares into which the agents divide a pool. It is one more than the
// highest index, so each index has its share, even if agents with lower indexes have left.
func Shares(pods []podview.Pod) int {
	shares := 0
	for i := range pods {
		if n, ok := index(&pods[i]); ok {
			shares = max(shares, n+1)
		}
	}
	return shares
}
