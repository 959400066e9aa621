package pool

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/metrics"
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

	cooling *cooling
	pace    *pace
}

// Reconcile keeps finalizer and status of a pool.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.IPPool{}
	err := r.Client.Get(ctx, request.NamespacedName, pool)
	if apierrors.IsNotFound(err) {
		r.cooling.forget(request.Name)
		r.pace.forget(request.Name)
		r.Metrics.ForgetPool(request.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("read pool %s: %w", request.Name, err)
	}
	result, err := r.keep(ctx, pool)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The pool has changed since it was read: look again, after its event.
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
	if wait := r.pace.wait(pool.Name, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return r.publish(ctx, pool)
}

// release lets a pool go that has no lease left. The cache says when to ask, and
// the API server itself decides: a lease that the cache has not seen yet would be
// left without a pool.
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

// publish writes the status if it has changed, and comes back when the next
// address has cooled down.
func (r *Reconciler) publish(ctx context.Context, pool *v1alpha1.IPPool) (ctrl.Result, error) {
	now := r.Clock.Now()
	cooling, nextOver := r.cooling.of(pool.Name, cooldownOf(pool), now)
	facts, err := r.facts(ctx, pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts.Cooling, facts.Now = cooling, metav1.NewTime(now)
	status, quarantined := Status(facts)
	r.Metrics.SetPool(pool.Name, status, quarantined)

	result := ctrl.Result{}
	if !nextOver.IsZero() {
		result.RequeueAfter = nextOver.Sub(now)
	}
	old := pool.Status
	if equality.Semantic.DeepEqual(old, status) {
		return result, nil
	}
	pool.Status = status
	if err := r.Client.Status().Update(ctx, pool); err != nil {
		return ctrl.Result{}, fmt.Errorf("publish status of pool %s: %w", pool.Name, err)
	}
	r.pace.published(pool.Name, len(status.InUse), facts.Shares, now)
	r.tell(pool, old.Conditions)
	return result, nil
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
	pods, err := agents.List(ctx, r.Client, r.Namespace)
	if err != nil {
		return Facts{}, err
	}
	return Facts{Pool: pool, Leases: leases.Items, Others: pools.Items, Agents: len(pods), Shares: agents.Shares(pods)}, nil
}

// tell makes an event of each condition that has changed for the worse or back.
func (r *Reconciler) tell(pool *v1alpha1.IPPool, old []metav1.Condition) {
	for _, c := range pool.Status.Conditions {
		was := meta.FindStatusCondition(old, c.Type)
		good := (c.Type == v1alpha1.ConditionReady) == (c.Status == metav1.ConditionTrue)
		if was == nil && good {
			continue
		}
		if was != nil && was.Status == c.Status && was.Reason == c.Reason {
			continue
		}
		kind := corev1.EventTypeWarning
		if good {
			kind = corev1.EventTypeNormal
		}
		r.Events.Eventf(pool, nil, kind, c.Type+string(c.Status), "Publish", "%s: %s", c.Reason, c.Message)
	}
}

func cooldownOf(pool *v1alpha1.IPPool) time.Duration {
	if r := pool.Spec.Reclaim; r != nil && r.Cooldown != nil {
		return r.Cooldown.Duration
	}
	return defaultCooldown
}
