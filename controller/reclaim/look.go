// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/controller/retention"
	"github.com/fenceline/fenceline/internal/owner"
)

// read returns an object, or nil if it does not exist. The caller must not change the object,
// because it may belong to the cache.
func read[T any, P interface {
	*T
	client.Object
}](ctx context.Context, reader client.Reader, namespace, name string) (P, error) {
	object := P(new(T))
	key := types.NamespacedName{Namespace: namespace, Name: name}
	err := reader.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %T %s: %w", object, key, err)
	}
	return object, nil
}

// look gathers the facts about a lease from the cache.
func (r *Reconciler) look(ctx context.Context, lease *v1alpha1.IPLease, n *note) (Facts, error) {
	pool, err := read[v1alpha1.IPPool](ctx, r.Client, "", lease.Spec.Pool)
	if err == nil && pool == nil {
		// The first leases of a new pool may reach the cache before the pool.
		pool, err = read[v1alpha1.IPPool](ctx, r.Live, "", lease.Spec.Pool)
	}
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Lease: lease, Pool: pool, Policy: PolicyOf(pool, r.Defaults), Now: r.Clock.Now()}
	spec, known := &lease.Spec, r.Client
	switch spec.State {
	case v1alpha1.StateBound:
		if f.Pod, err = lookAtPod(ctx, known, f, n); err == nil {
			f.PodSeen = n.saw(f.Pod.Object, spec.Holder)
			f.FinishedSeen = n.firstSeen(finishedPod, f.Pod.Object != nil && f.Pod.Object.IsFinished(), f.Now)
			f.Node, err = r.lookAtNode(ctx, spec.NodeName, f, n)
		}
		if err == nil {
			f.Migration, err = r.lookAtMigration(ctx, spec.Holder)
		}
	case v1alpha1.StateWarm:
		if f.Node, err = r.lookAtNode(ctx, spec.NodeName, f, n); err == nil {
			f.AgentAbsentSince, err = r.lookForAgent(ctx, spec.NodeName, f, n)
		}
	case v1alpha1.StateQuarantined:
		if p := spec.Previous; p != nil {
			f.Node, err = r.lookAtNode(ctx, p.Node, f, n)
		}
		if err == nil {
			f.Verifier, err = r.lookAtVerifier(ctx, spec.NodeName, f, n)
		}
		if err == nil && hadNoHolder(spec) {
			var s supply
			s, err = readSupply(ctx, known)
			f.Givers = s.givers(lease)
		}
	case v1alpha1.StateRetained:
		if isKeptForPod(spec) {
			if f.Successor, err = r.successor(ctx, lease); err == nil {
				f.Pod, err = lookAtPod(ctx, known, f, n)
			}
			return f, err
		}
		if f.Owner, err = r.lookAtOwner(ctx, known, spec.Holder); err == nil {
			f.Successor, err = r.successor(ctx, lease)
		}
		if err == nil && f.Successor != nil {
			f.Pod, err = lookAtPod(ctx, known, f, n)
		}
	}
	return f, err
}

// lookAgain reads the objects that a decision depends on from the API server (R11). This includes the
// pool, whose policy an operator may just have changed, and a node that is Ready in the cache: its state
// decides whether EndpointSlices are needed (R12).
func (r *Reconciler) lookAgain(ctx context.Context, f Facts, n *note) (Facts, error) {
	f.Now = r.Clock.Now()
	var err error
	// The shared reads go on while the pod is read: 433 reclaims a second, one after the other 381.
	pool := r.pools.Begin(ctx, f.Lease.Spec.Pool)
	var node func() (*corev1.Node, error)
	if f.Node.Known {
		node = r.nodes.Begin(ctx, nodeOf(f.Lease))
	}
	if f.Pod.Known {
		if f.Pod, err = lookAtPod(ctx, r.Live, f, n); err != nil {
			return f, err
		}
	}
	if f.Pool, err = pool(); err != nil {
		return f, err
	}
	f.Policy = PolicyOf(f.Pool, r.Defaults)
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
	if f.Migration.Target != nil {
		if f.Migration, err = r.lookAtMigration(ctx, f.Lease.Spec.Holder); err != nil {
			return f, err
		}
	}
	if f.Owner.Known() {
		if f.Owner, err = r.lookAtOwner(ctx, r.Live, f.Lease.Spec.Holder); err != nil {
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
	if f.Successor != nil {
		f.Successor, err = successorNow(ctx, r.Live, f)
	}
	return f, err
}

// nodeOf returns the node that a decision about the lease depends on.
func nodeOf(lease *v1alpha1.IPLease) string {
	if p := lease.Spec.Previous; lease.Spec.State == v1alpha1.StateQuarantined && p != nil {
		return p.Node
	}
	return lease.Spec.NodeName
}

// lookAtPod looks at the pod of the lease's holder, or at that of the successor of a Retained lease.
func lookAtPod(ctx context.Context, reader client.Reader, f Facts, n *note) (View[podview.Pod], error) {
	holder := f.Lease.Spec.Holder
	if f.Successor != nil {
		holder = f.Successor.Spec.Holder
	}
	if holder == nil || holder.Pod == "" {
		return View[podview.Pod]{}, nil
	}
	pod, err := read[podview.Pod](ctx, reader, holder.Namespace, holder.Pod)
	if err != nil {
		return View[podview.Pod]{}, err
	}
	return View[podview.Pod]{Known: true, Object: pod, AbsentSince: n.firstSeen(absentPod, pod == nil, f.Now)}, nil
}

// lookAtNode looks at a node in the cache.
func (r *Reconciler) lookAtNode(ctx context.Context, name string, f Facts, n *note) (View[corev1.Node], error) {
	if name == "" {
		return View[corev1.Node]{}, nil
	}
	node, err := read[corev1.Node](ctx, r.Client, "", name)
	if err != nil {
		return View[corev1.Node]{}, err
	}
	return viewOfNode(node, f, n), nil
}

func viewOfNode(node *corev1.Node, f Facts, n *note) View[corev1.Node] {
	return View[corev1.Node]{Known: true, Object: node, AbsentSince: n.firstSeen(absentNode, node == nil, f.Now)}
}

// lookForAgent reads only from the cache. A late answer is safe: an agent that comes back makes
// another address Warm, and never binds an address that was taken.
func (r *Reconciler) lookForAgent(ctx context.Context, node string, f Facts, n *note) (time.Time, error) {
	works, err := agents.WorksOn(ctx, r.Client, r.Namespace, node)
	if err != nil {
		return time.Time{}, err
	}
	return n.firstSeen(absentAgent, !works, f.Now), nil
}

func (r *Reconciler) lookAtVerifier(ctx context.Context, name string, f Facts, n *note) (Verifier, error) {
	v := Verifier{AskedAt: n.assignment.askedAt, Changes: n.assignment.changes}
	if name == "" {
		return v, nil
	}
	node, err := read[corev1.Node](ctx, r.Client, "", name)
	if err != nil {
		return v, err
	}
	v.Node = View[corev1.Node]{Known: true, Object: node}
	if node != nil && agents.IsReady(node) {
		if v.Alive, err = agents.WorksOn(ctx, r.Client, r.Namespace, name); err != nil {
			return v, err
		}
	}
	v.AwaySince = n.assignment.sawAlive(v.Alive, f.Now)
	return v, nil
}

// lookAtOwner looks at the owner of a holder whose identity outlives its pods. Kubernetes' own
// StatefulSets are read by reader, all others from the API server.
func (r *Reconciler) lookAtOwner(ctx context.Context, reader client.Reader, holder *v1alpha1.Holder) (retention.Owner, error) {
	ref, ok := owner.OfHolder(holder)
	if !ok || !owner.KeepsName(holder) {
		return retention.Owner{}, nil
	}
	var view owner.View
	if ref.IsApps() {
		set, err := read[appsv1.StatefulSet](ctx, reader, ref.Namespace, ref.Name)
		if err != nil {
			return retention.Owner{}, err
		}
		view = owner.ViewOf(ref, set)
	} else {
		var err error
		if view, err = r.Owners.Look(ctx, holder); err != nil {
			return retention.Owner{}, err
		}
		if view.Lack != "" {
			r.Metrics.OwnerUnknown(string(view.Lack))
		}
	}
	o := retention.Owner{Need: view.Need(holder.Pod), Unwatched: !ref.IsApps()}
	var err error
	if o.Asked, err = v1alpha1.ParseRetention(view.Annotations); err != nil {
		o.Unreadable = fmt.Sprintf("%s: %s", view.Ref, err)
	}
	return o, nil
}
