// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// mostLabels is the greatest number of pools with a label. The policy fenceline-controller-nodes allows a node twice
	// as many labels, since some wait for the end of leases.
	mostLabels = 128
	// nodesPerPass bounds the writes of a pass, since each wakes all who watch nodes. The next pass is a
	// labelInterval later.
	nodesPerPass  = 50
	labelInterval = time.Second
	// leftAfter is the time between two looks at a label that waits for the end of leases.
	leftAfter = 30 * time.Second
)

// NodeLabels writes a label for each pool that serves some nodes only: LabelPool with the pool's name is "true" on
// the nodes that it serves, and "false" on the others. A node without the label is as one that the pool serves, so a
// missing label costs no pod its node.
type NodeLabels struct {
	Client client.Client
	Clock  clock.PassiveClock
	next   time.Time
}

// labelledPool is a pool that has a label on nodes.
type labelledPool struct {
	name   string
	serves func(node string, of labels.Labels) bool
}

// serving returns the nodes that a pool is for. As for an agent, nodeName decides if it is set, else nodeAffinity.
func serving(spec *v1alpha1.IPPoolSpec) func(node string, of labels.Labels) bool {
	selector, err := metav1.LabelSelectorAsSelector(spec.NodeAffinity)
	if spec.NodeAffinity == nil || err != nil {
		selector = labels.Everything()
	}
	return func(node string, of labels.Labels) bool {
		if len(spec.NodeName) > 0 {
			return slices.Contains(spec.NodeName, node)
		}
		return selector.Matches(of)
	}
}

// labelledPools returns the pools that serve some nodes only, at most mostLabels of them, in the order of their names.
// No pod names the pool of an IPSubnet, and a name of more than 63 characters is no label.
func labelledPools(pools []v1alpha1.IPPool) []labelledPool {
	var all []labelledPool
	for i := range pools {
		p := &pools[i]
		isForSome := len(p.Spec.NodeName) > 0 || p.Spec.NodeAffinity != nil
		if isForSome && p.DeletionTimestamp == nil && p.Spec.IPSubnet == "" && len(validation.IsQualifiedName(v1alpha1.LabelPool+p.Name)) == 0 {
			all = append(all, labelledPool{p.Name, serving(&p.Spec)})
		}
	}
	slices.SortFunc(all, func(a, b labelledPool) int { return cmp.Compare(a.name, b.name) })
	return all[:min(len(all), mostLabels)]
}

// labelChanges returns the values that the labels of a node need: nil removes a label. A pool that holds leases on
// the node gets no "false" there, and keeps its "true": the kubelet, when it restarts, ends pods that their node no
// longer fits. waits reports whether there is such a pool.
func labelChanges(node *corev1.Node, pools []labelledPool, holds func(pool string) bool) (changes map[string]any, waits bool) {
	changes = map[string]any{}
	for key := range node.Labels {
		if strings.HasPrefix(key, v1alpha1.LabelPool) {
			changes[key] = nil
		}
	}
	for _, p := range pools {
		serves := p.serves(node.Name, labels.Set(node.Labels))
		key, value := v1alpha1.LabelPool+p.name, strconv.FormatBool(serves)
		switch was, ok := node.Labels[key]; {
		case ok && was == value:
			delete(changes, key)
		case !serves && holds(p.name):
			waits = true // without the label, if it has none yet
			if ok && was == "true" {
				delete(changes, key)
			}
		default:
			changes[key] = value
		}
	}
	for key, value := range changes {
		if value == nil && node.Labels[key] == "true" && holds(strings.TrimPrefix(key, v1alpha1.LabelPool)) {
			delete(changes, key) // the pool is for all nodes now, ends, or has no label
			waits = true
		}
	}
	return changes, waits
}

// Reconcile writes the labels of some nodes that need it.
func (r *NodeLabels) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	now := r.Clock.Now()
	if wait := r.next.Sub(now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	r.next = now.Add(labelInterval)

	var pools v1alpha1.IPPoolList
	var nodes corev1.NodeList
	if err := errors.Join(r.Client.List(ctx, &pools, client.UnsafeDisableDeepCopy), r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list pools and nodes: %w", err)
	}
	labelled, left := labelledPools(pools.Items), nodesPerPass
	var result ctrl.Result
	var errs []error
	for i := range nodes.Items {
		node := &nodes.Items[i]
		changes, waits := labelChanges(node, labelled, func(pool string) bool { return r.holds(ctx, pool, node.Name) })
		if waits && result.RequeueAfter == 0 {
			result.RequeueAfter = leftAfter
		}
		if len(changes) == 0 {
			continue
		}
		if left--; left < 0 {
			result.RequeueAfter = labelInterval
			break
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changes}})
		if err == nil {
			to := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
			err = client.IgnoreNotFound(r.Client.Patch(ctx, to, client.RawPatch(types.MergePatchType, patch)))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write labels %s of node %s: %w", strings.Join(slices.Sorted(maps.Keys(changes)), ", "), node.Name, err))
		}
	}
	return result, errors.Join(errs...)
}

// holds reports whether a pool has leases on a node, or that is not known.
func (r *NodeLabels) holds(ctx context.Context, pool, node string) bool {
	var leases v1alpha1.IPLeaseList
	err := r.Client.List(ctx, &leases, client.MatchingFields{cache.LeasesByPoolNode: cache.PoolNodeKey(pool, node)}, client.UnsafeDisableDeepCopy)
	return err != nil || slices.ContainsFunc(leases.Items, func(l v1alpha1.IPLease) bool { return l.Spec.State == v1alpha1.StateBound })
}

// SetupWithManager registers the reconciler. All nodes share one request.
func (r *NodeLabels) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "nodes"}}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodelabels").
		WithOptions(controller.Options{RateLimiter: loop.Limiter()}).
		Watches(&v1alpha1.IPPool{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, all, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Complete(r)
}
