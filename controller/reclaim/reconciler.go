// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/internal/apiserver"
	"github.com/fenceline/fenceline/internal/loop"
)

// disagreement is the pause for the cache to catch up with a live read that contradicts it.
const disagreement = time.Second

// liveTimeout bounds a live read that decisions share. The EndpointSlices of a large namespace take
// seconds.
const liveTimeout = 30 * time.Second

// Reconciler decides about one lease at a time and carries out the decision.
type Reconciler struct {
	Reader Reader
	// Client writes to the API server.
	Client  client.Writer
	Events  events.EventRecorder
	Metrics *metrics.Metrics
	// Audit writes the audit lines. The logger of a reconcile adds fields, which R14 forbids.
	Audit logr.Logger

	memory *memory
	turns  *turns
	// follow watches the virtual machine of a holder, and reports whether its changes wake the lease. It is nil
	// without a manager.
	follow func(*v1alpha1.Holder) bool
	// pools and nodes (by name), offers (by namespace) and supply are live reads that decisions at the same
	// time share. When a node fails, many of its leases are due at once. Of 2000 such leases, 490 were
	// reclaimed per second without shared reads, and 550 with them.
	pools  *apiserver.Reads[*v1alpha1.IPPool]
	nodes  *apiserver.Reads[*corev1.Node]
	offers *apiserver.Reads[map[endpoint]string]
	supply *apiserver.Reads[supply]
	// withAgents are shared reads of the cache. With 3000 nodes, each took longer than the rest of a reclaim.
	withAgents *apiserver.Reads[[]string]
}

// begin sets up the reconciler's own state.
func (r *Reconciler) begin() {
	r.memory, r.turns = newMemory(), newTurns()
	r.pools = apiserver.NewReads("pool", liveTimeout, func(ctx context.Context, name string) (*v1alpha1.IPPool, error) {
		return read[v1alpha1.IPPool](ctx, r.Reader.Live, "", name)
	})
	r.nodes = apiserver.NewReads("node", liveTimeout, func(ctx context.Context, name string) (*corev1.Node, error) {
		return read[corev1.Node](ctx, r.Reader.Live, "", name)
	})
	r.offers = apiserver.NewReads("the offers of namespace", liveTimeout, func(ctx context.Context, namespace string) (map[endpoint]string, error) {
		return offersIn(ctx, r.Reader.Live, namespace)
	})
	r.supply = apiserver.NewReads("all", liveTimeout, func(ctx context.Context, _ string) (supply, error) { return readSupply(ctx, r.Reader.Live) })
	r.withAgents = apiserver.NewReads("the nodes of", liveTimeout, func(ctx context.Context, _ string) ([]string, error) {
		return r.Reader.nodesWithAgents(ctx)
	})
}

// Reconcile decides about a lease from the cache. It carries a destructive action out only if a
// decision from live reads is the same (R11). A hand-over by a virtual machine that names both pods needs no second
// decision: the machine was read live, and it is mute meanwhile.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	lease, err := read[v1alpha1.IPLease](ctx, r.Reader.Cache, "", request.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if lease == nil {
		r.memory.forget(request.Name)
		r.turns.forget(request.Name)
		return ctrl.Result{}, nil
	}
	n := r.memory.about(lease, r.Reader.Clock.Now())
	facts, err := r.Reader.look(ctx, lease, n)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("look at lease %s: %w", lease.Name, err)
	}
	if facts.Migration.Target != nil && facts.Migration.Unknown == "" && r.follow != nil {
		facts.Migration.Watched = r.follow(lease.Spec.Holder)
	}
	action := Decide(facts)
	if action.Kind == Quarantine || action.Kind == DeletePod {
		// A pod that is deleted for a reclaim has the turn of its address.
		if !n.rarely().turn && !r.turns.take(lease.Spec.Pool, lease.Name, facts.Now) {
			return ctrl.Result{}, nil
		}
		n.rare.turn = true
	}
	handsOver := action.Reason == v1alpha1.ReasonMigrated && facts.Migration.State.Source != ""
	if action.Destructive() && !handsOver {
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
	result, err := r.do(ctx, facts, action, n)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// The watch event of the change leads to a new decision. The pause covers an event that
		// came before this point.
		return ctrl.Result{RequeueAfter: disagreement}, nil
	}
	return result, err
}

// lookAgain reads the objects that a decision depends on from the API server (R11). This includes the
// pool, whose policy an operator may just have changed, and a node that is Ready in the cache: its state
// decides whether EndpointSlices are needed (R12). A virtual machine that migrates was read just before.
func (r *Reconciler) lookAgain(ctx context.Context, f Facts, n *note) (Facts, error) {
	f.Now = r.Reader.Clock.Now()
	var err error
	// The shared reads go on while the pod is read: 433 reclaims a second, one after the other 381.
	pool := r.pools.Begin(ctx, f.Lease.Spec.Pool)
	var node func() (*corev1.Node, error)
	if f.Node.Known {
		node = r.nodes.Begin(ctx, nodeOf(f.Lease))
	}
	if f.Pod.Known {
		if f.Pod, err = lookAtPod(ctx, r.Reader.Live, f, n); err != nil {
			return f, err
		}
	}
	if f.Pool, err = pool(); err != nil {
		return f, err
	}
	f.Policy = PolicyOf(f.Pool, r.Reader.Defaults)
	if node != nil {
		object, err := node()
		if err != nil {
			return f, err
		}
		f.Node = viewOfNode(object, f, n)
	}
	if mayBeOffered(f) {
		if f.Offer, err = r.lookAtOffer(ctx, f, n); err != nil {
			return f, err
		}
	}
	if f.Owner.Known() {
		if f.Owner, err = r.Reader.lookAtOwner(ctx, r.Reader.Live, f.Lease.Spec.Holder); err != nil {
			return f, err
		}
	}
	if f.Givers.Known {
		s, err := r.supply.Get(ctx, "pools and reservations")
		if err != nil {
			return f, err
		}
		f.Givers = s.givers(f.Lease)
	}
	if f.Reserved != nil {
		if f.Reserved, err = reservedFor(ctx, r.Reader.Live, f.Lease); err != nil {
			return f, err
		}
	}
	if f.Successor != nil {
		f.Successor, err = successorNow(ctx, r.Reader.Live, f)
	}
	return f, err
}

// do carries out an action.
func (r *Reconciler) do(ctx context.Context, f Facts, a Action, n *note) (ctrl.Result, error) {
	switch a.Kind {
	case Quarantine:
		return ctrl.Result{}, r.quarantine(ctx, f, a)
	case Reassign:
		return r.reassign(ctx, f, a, n)
	case DeletePod:
		return ctrl.Result{}, r.deletePod(ctx, f, a)
	case EndRetention:
		return ctrl.Result{}, r.free(ctx, f, a, eventRetentionEnded)
	case EndQuarantine:
		return ctrl.Result{}, r.free(ctx, f, a, eventQuarantineEnded)
	default:
		r.withhold(ctx, f, a, n)
		err := r.remark(ctx, f.Lease, remarkOn(f.Lease, f.Pool, a))
		if a.Kind == Wait {
			// The work queue drops a due time in the past.
			return ctrl.Result{RequeueAfter: max(a.Until.Sub(f.Now), time.Millisecond)}, err
		}
		return ctrl.Result{}, err
	}
}

// giveTurns wakes the leases whose turn to be taken has come, until ctx ends.
func (r *Reconciler) giveTurns(ctx context.Context, wake func(reconcile.Request)) {
	giving := loop.Loop{Clock: r.Reader.Clock, Period: time.Hour, Wake: r.turns.wake}
	_ = giving.Pace(ctx, func(context.Context) (time.Duration, error) {
		due, next := r.turns.due(r.Reader.Clock.Now())
		for _, name := range due {
			wake(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
		r.Metrics.SetReclaimsWaiting(r.turns.size())
		return next, nil
	})
}

// audit wakes every lease of the cache once in a period, for changes that no watch event reported.
// A new leader starts without an audit: the first list of its watches contains every lease.
func (r *Reconciler) audit(ctx context.Context, period time.Duration, wake func(reconcile.Request)) {
	r.Metrics.SetReclaimEnabled(r.Reader.Defaults.Enabled)
	if !r.Reader.Defaults.Enabled {
		log.FromContext(ctx).Info("reclaim is switched off: no address is taken and no retention ends; Quarantined leases are still verified")
	}
	_ = loop.Loop{Clock: r.Reader.Clock, Period: period, Later: true}.Every(ctx, func(ctx context.Context) {
		var leases v1alpha1.IPLeaseList
		err := r.Reader.Cache.List(ctx, &leases, client.UnsafeDisableDeepCopy)
		log.FromContext(ctx).Info("audit", "leases", len(leases.Items), "reclaim", r.Reader.Defaults.Enabled)
		for _, request := range requestsFor(ctx, leases.Items, err, nil) {
			wake(request)
		}
	})
}
