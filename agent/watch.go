package main

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/verify"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// claimKeySecret is the Secret that the controller creates.
const claimKeySecret = "fenceline-claim-key"

// parallelVerifications bounds the leases of a node under verification at a
// time; the segment paces their frames.
const parallelVerifications = 32

// watched restricts the caches to what this node needs, so that an agent does
// not grow with the cluster.
func watched(s settings) cache.Options {
	ofNode := fields.OneTermEqualSelector("spec.nodeName", s.node)
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:       {Field: ofNode},
			&v1alpha1.IPLease{}: {Field: ofNode},
			&corev1.Node{}:      {Field: fields.OneTermEqualSelector("metadata.name", s.node)},
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{s.namespace: {
				FieldSelector: fields.OneTermEqualSelector("metadata.name", claimKeySecret),
			}}},
		},
	}
}

// watchQuarantine lets the verifier work on the Quarantined leases of this node.
func watchQuarantine(mgr ctrl.Manager, v *verify.Verifier) error {
	return builder.ControllerManagedBy(mgr).Named("verify").
		For(&v1alpha1.IPLease{}, builder.WithPredicates(about(v1alpha1.StateQuarantined))).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallelVerifications}).
		Complete(v)
}

// watchLeases tells the holders which lease of this node has changed or left
// it. After an outage of the API server the first list tells what changed
// meanwhile. It is apart from the verifications, which take their time.
func watchLeases(mgr ctrl.Manager, h *holder.Holders) error {
	return builder.ControllerManagedBy(mgr).Named("holders").
		For(&v1alpha1.IPLease{}, builder.WithPredicates(madeByOthers())).
		Complete(reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			h.Changed(r.Name)
			return reconcile.Result{}, nil
		}))
}

// madeByOthers passes what was not written by an ADD of this node. A lease that
// is new here was created by one, or was assigned to this node to be verified.
func madeByOthers() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return isIn(v1alpha1.StateQuarantined, e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !isIn(v1alpha1.StateWarm, e.ObjectOld) || !isIn(v1alpha1.StateBound, e.ObjectNew) ||
				e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
		},
	}
}

// about passes what happens to leases that are or were in a state.
func about(state v1alpha1.LeaseState) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return isIn(state, e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return isIn(state, e.ObjectOld) || isIn(state, e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return isIn(state, e.Object) },
	}
}

func isIn(state v1alpha1.LeaseState, o client.Object) bool {
	l, ok := o.(*v1alpha1.IPLease)
	return ok && l.Spec.State == state
}

// watchPools tells the kernel which networks are this cluster's. It runs
// whenever a pool changes, and is small.
func watchPools(mgr ctrl.Manager, kernel *bpf.Kernel, cluster string) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return builder.ControllerManagedBy(mgr).Named("networks").
		Watches(&v1alpha1.IPPool{}, one, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			pools := &v1alpha1.IPPoolList{}
			if err := mgr.GetClient().List(ctx, pools); err != nil {
				return reconcile.Result{}, fmt.Errorf("list pools: %w", err)
			}
			return reconcile.Result{}, kernel.SetNetworks(networks(cluster, pools.Items))
		}))
}

// networks are the numbers under which claims of this cluster travel.
func networks(cluster string, pools []v1alpha1.IPPool) []uint64 {
	seen := map[uint64]bool{}
	all := []uint64{}
	for i := range pools {
		n := claim.Network(cluster, pools[i].Spec.Network)
		if !seen[n] {
			seen[n] = true
			all = append(all, n)
		}
	}
	return all
}

// watchKey gives the claim keys to the kernel, which verifies, and to the
// segments, which sign.
func watchKey(mgr ctrl.Manager, kernel *bpf.Kernel, segments *segment.Segments, log logr.Logger) error {
	var ring keyring
	return builder.ControllerManagedBy(mgr).Named("claim-key").
		For(&corev1.Secret{}).
		Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			secret := &corev1.Secret{}
			if err := mgr.GetClient().Get(ctx, r.NamespacedName, secret); err != nil {
				// A key that was deleted stays in force here until there is another.
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			current, previous, err := claimKeys(secret)
			if err != nil {
				return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("secret %s: %w", r.Name, err))
			}
			next := ring.next(current, previous)
			if err := kernel.SetKeys(next.current, next.previous); err != nil {
				return reconcile.Result{}, fmt.Errorf("give the claim keys to the kernel: %w", err)
			}
			ring = next
			keys := ring.keys()
			segments.SetKeys(keys...)
			log.Info("claim keys are set", "keys", len(keys))
			return reconcile.Result{}, nil
		}))
}
