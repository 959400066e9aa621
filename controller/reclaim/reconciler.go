package reclaim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/metrics"
)

// disagreement is how long to wait for the cache where a live read contradicts it.
const disagreement = time.Second

// Reconciler decides about one lease at a time and carries the decision out.
type Reconciler struct {
	// Client reads through the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server itself.
	Live    client.Reader
	Events  events.EventRecorder
	Metrics *metrics.Metrics
	Clock   clock.WithTicker
	// Audit takes the audit lines. The reconciler's own logger would add fields (R14).
	Audit logr.Logger
	// Namespace of the agents.
	Namespace string
	// Defaults of pools that say nothing else.
	Defaults Policy

	memory *memory
	live   live
	digest *digest
}

// begin makes what the reconciler needs for itself.
func (r *Reconciler) begin() {
	r.memory = newMemory()
	r.live = liveWitnesses(r.Live, r.Client)
	r.digest = newDigest(r.Clock)
}

// Reconcile looks at a lease through the cache. What would take an address, end
// its retention or delete a pod is decided a second time over live reads, and
// is done only if both decisions are the same (R11).
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	lease, err := read[v1alpha1.IPLease](ctx, r.Client, "", request.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if lease == nil {
		r.memory.forget(request.Name)
		return ctrl.Result{}, nil
	}
	pool, err := read[v1alpha1.IPPool](ctx, r.Client, "", lease.Spec.Pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	n := r.memory.about(lease, r.Clock.Now())
	facts, err := r.look(ctx, lease, pool, n)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("look at lease %s: %w", lease.Name, err)
	}
	action := Decide(facts)
	if action.Destructive() {
		if facts, err = r.lookAgain(ctx, facts, n); err != nil {
			return ctrl.Result{}, fmt.Errorf("look at lease %s again: %w", lease.Name, err)
		}
		confirmed := Decide(facts)
		if !confirmed.SameAs(action) && confirmed.Kind != Wait {
			log.FromContext(ctx).V(1).Info("the live view disagrees", "lease", lease.Name,
				"cached", action.Why, "live", confirmed.Why)
			return ctrl.Result{RequeueAfter: disagreement}, nil
		}
		action = confirmed
	}
	result, err := r.do(ctx, facts, action, pool, n)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// Somebody wrote or deleted meanwhile, so what was judged is history. The
		// change's own event asks again; the pause covers an event already seen.
		return ctrl.Result{RequeueAfter: disagreement}, nil
	}
	return result, err
}

// do carries an action out.
func (r *Reconciler) do(ctx context.Context, f Facts, a Action, pool *v1alpha1.IPPool, n *note) (ctrl.Result, error) {
	switch a.Kind {
	case Quarantine:
		return ctrl.Result{}, r.quarantine(ctx, f, a)
	case Reassign:
		return r.reassign(ctx, f, a, n)
	case DeletePod:
		return ctrl.Result{}, r.deletePod(ctx, f, a)
	case EndRetention:
		return ctrl.Result{}, r.endRetention(ctx, f, a)
	default:
		r.withhold(ctx, f.Lease, pool, a, n)
		err := r.remark(ctx, f.Lease, remarkOn(f.Lease, pool, a))
		if a.Kind == Wait {
			// A due time in the past would be dropped by the work queue.
			return ctrl.Result{RequeueAfter: max(a.Until.Sub(f.Now), time.Millisecond)}, err
		}
		return ctrl.Result{}, err
	}
}

// audit sends every lease of the cache through wake, to find what no event told
// of. A new leader needs none at its start: the first list of its watches
// brings every lease up.
func (r *Reconciler) audit(ctx context.Context, period time.Duration, wake func(context.Context, *v1alpha1.IPLease) error) error {
	r.Metrics.SetReclaimEnabled(r.Defaults.Enabled)
	if !r.Defaults.Enabled {
		log.FromContext(ctx).Info("reclaim is switched off: no address is taken, no retention ends; what is Quarantined already is verified")
	}
	ticker := r.Clock.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		var leases v1alpha1.IPLeaseList
		if err := r.Client.List(ctx, &leases, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("audit: list leases: %w", err)
		}
		log.FromContext(ctx).Info("audit", "leases", len(leases.Items), "reclaim", r.Defaults.Enabled)
		for i := range leases.Items {
			if err := wake(ctx, &leases.Items[i]); err != nil {
				if errors.Is(err, context.Canceled) {
					return nil
				}
				return err
			}
		}
	}
}
