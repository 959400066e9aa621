// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Reconciler publishes the status of one pool at a time.
type Reconciler struct {
	// Client reads through the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server itself.
	Live    client.Reader
	Events  events.EventRecorder
	Metrics *metrics.Metrics
	Clock   clock.PassiveClock
	// Namespace of the agents.
	Namespace string

	notes *notes
}

// Reconcile updates the finalizer and the status of a pool.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.IPPool{}
	err := r.Client.Get(ctx, request.NamespacedName, pool)
	if apierrors.IsNotFound(err) {
		r.notes.forget(request.Name)
		r.Metrics.ForgetPool(request.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("read pool %s: %w", request.Name, err)
	}
	result, err := r.keep(ctx, pool)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The pool has changed since it was read. Its event starts the next pass.
		return ctrl.Result{RequeueAfter: minInterval}, nil
	}
	return result, err
}

func (r *Reconciler) keep(ctx context.Context, pool *v1alpha1.IPPool) (ctrl.Result, error) {
	if pool.DeletionTimestamp != nil {
		if done, err := r.release(ctx, pool); done || err != nil {
			return ctrl.Result{}, err
		}
	} else if controllerutil.AddFinalizer(pool, v1alpha1.FinalizerPool) {
		if err := r.Client.Update(ctx, pool); err != nil {
			return ctrl.Result{}, fmt.Errorf("add finalizer to pool %s: %w", pool.Name, err)
		}
	}
	// One pass covers a burst of leases.
	if wait := r.notes.look(pool.Name, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return r.publish(ctx, pool)
}

// release removes the finalizer of a pool that has no leases. It checks the cache first, and then the
// API server. Otherwise a lease that the cache does not have yet would lose its pool.
func (r *Reconciler) release(ctx context.Context, pool *v1alpha1.IPPool) (done bool, err error) {
	if !controllerutil.ContainsFinalizer(pool, v1alpha1.FinalizerPool) {
		return true, nil
	}
	for _, witness := range []struct {
		reader client.Reader
		field  string
	}{{r.Client, cache.LeasesByPool}, {r.Live, "spec.pool"}} {
		var leases v1alpha1.IPLeaseList
		err := witness.reader.List(ctx, &leases, client.MatchingFields{witness.field: pool.Name},
			client.Limit(1), client.UnsafeDisableDeepCopy)
		if err != nil {
			return false, fmt.Errorf("list leases of pool %s: %w", pool.Name, err)
		}
		if len(leases.Items) > 0 {
			return false, nil
		}
	}
	controllerutil.RemoveFinalizer(pool, v1alpha1.FinalizerPool)
	if err := r.Client.Update(ctx, pool); err != nil {
		return false, fmt.Errorf("remove finalizer of pool %s: %w", pool.Name, err)
	}
	return true, nil
}

// publish writes the status if it has changed and may be published now. The result requests the
// next pass: when the status may be published, or the next address has cooled down.
func (r *Reconciler) publish(ctx context.Context, pool *v1alpha1.IPPool) (ctrl.Result, error) {
	now := r.Clock.Now()
	cooling, nextOver := r.notes.cooling(pool.Name, pool.Cooldown(), now)
	facts, err := r.facts(ctx, pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts.Cooling, facts.Now = cooling, metav1.NewTime(now)
	var untilFewer time.Duration
	facts.Agents, untilFewer = r.notes.agents(pool.Name, int(pool.Status.Agents), facts.Agents, now)
	report := NewReport(facts)
	r.Metrics.SetPool(pool.Name, report)

	result := ctrl.Result{RequeueAfter: untilFewer}
	if over := nextOver.Sub(now); !nextOver.IsZero() && (untilFewer == 0 || over < untilFewer) {
		result.RequeueAfter = over
	}
	old := pool.Status
	if equality.Semantic.DeepEqual(old, report.Status) {
		return result, nil
	}
	if wait := r.notes.wait(pool.Name, isUrgent(old, report.Status), now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	pool.Status = report.Status
	if err := r.Client.Status().Update(ctx, pool); err != nil {
		return ctrl.Result{}, fmt.Errorf("publish status of pool %s: %w", pool.Name, err)
	}
	r.notes.published(pool.Name, sizeOf(pool), facts.Agents, now)
	for _, e := range condition.Events(old.Conditions, report.Status.Conditions, reasonDeleting, reasonDisabled) {
		r.Events.Eventf(pool, nil, e.Type, e.Reason, "Publish", "%s", e.Note)
	}
	return result, nil
}

// isUrgent reports whether a node or a person waits for the change. A node waits for addresses, or
// for the Warm leases of other nodes. A person waits for the result of an edit.
func isUrgent(was, is v1alpha1.IPPoolStatus) bool {
	return was.Scarce != is.Scarce || !equality.Semantic.DeepEqual(was.Withheld, is.Withheld) || was.Stock != is.Stock || was.ObservedGeneration != is.ObservedGeneration ||
		slices.ContainsFunc(is.Conditions, func(c metav1.Condition) bool { return condition.HasChanged(was.Conditions, c) })
}

func (r *Reconciler) facts(ctx context.Context, pool *v1alpha1.IPPool) (Facts, error) {
	var leases v1alpha1.IPLeaseList
	err := r.Client.List(ctx, &leases, client.UnsafeDisableDeepCopy, client.MatchingFields{cache.LeasesByPool: pool.Name})
	if err != nil {
		return Facts{}, fmt.Errorf("list leases of pool %s: %w", pool.Name, err)
	}
	var pools v1alpha1.IPPoolList
	if err := r.Client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return Facts{}, fmt.Errorf("list pools: %w", err)
	}
	reservations, err := poolset.Reservations(ctx, r.Client)
	if err != nil {
		return Facts{}, err
	}
	pods, err := agents.List(ctx, r.Client, r.Namespace)
	if err != nil {
		return Facts{}, err
	}
	labelsOf, err := r.nodeLabels(ctx, pool)
	if err != nil {
		return Facts{}, err
	}
	return Facts{
		Pool: pool, Leases: leases.Items, Others: pools.Items, Reserved: poolset.ReservedSet(reservations), Kept: poolset.KeptSet(reservations),
		IsKept: func(l *v1alpha1.IPLease) bool {
			for i := range reservations {
				if poolset.IsKept(&reservations[i], l) {
					return true
				}
			}
			return false
		},
		Agents: len(pods), Shares: agents.Shares(pods), Served: served(pool, pods, labelsOf),
	}, nil
}

// nodeLabels returns the labels of the nodes. It lists no nodes if the pool does not need labels.
func (r *Reconciler) nodeLabels(ctx context.Context, pool *v1alpha1.IPPool) (map[string]labels.Set, error) {
	byName := map[string]labels.Set{}
	if !asksForLabels(pool) {
		return byName, nil
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		byName[nodes.Items[i].Name] = nodes.Items[i].Labels
	}
	return byName, nil
}
