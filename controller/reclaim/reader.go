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
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/podview"
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

// Reader gathers the facts about leases. Calls may run at the same time.
type Reader struct {
	// Cache has the indexes of the controller's cache.
	Cache client.Reader
	// Live reads from the API server, not from the cache.
	Live client.Reader
	// Owners asks about owners that are not watched.
	Owners owner.Asker
	// OwnerUnknown is told why an owner could not be read. It may be nil.
	OwnerUnknown func(reason string)
	Clock        clock.WithTicker
	// Namespace is the namespace of the agents.
	Namespace string
	// Defaults apply to pools that set no policy.
	Defaults Policy
}

// Explain returns the decision about a lease, and carries nothing out. Only the running controller
// remembers when it first saw that an object is gone. Here such times begin with the call.
func (r Reader) Explain(ctx context.Context, lease *v1alpha1.IPLease) (Action, error) {
	n := newMemory().about(lease, lease.Spec.Since.Time)
	f, err := r.look(ctx, lease, n)
	if err != nil {
		return Action{}, fmt.Errorf("look at lease %s: %w", lease.Name, err)
	}
	return Decide(f), nil
}

// look gathers the facts about a lease from the cache.
func (r Reader) look(ctx context.Context, lease *v1alpha1.IPLease, n *note) (Facts, error) {
	pool, err := read[v1alpha1.IPPool](ctx, r.Cache, "", lease.Spec.Pool)
	if err == nil && pool == nil {
		// The first leases of a new pool may reach the cache before the pool.
		pool, err = read[v1alpha1.IPPool](ctx, r.Live, "", lease.Spec.Pool)
	}
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Lease: lease, Pool: pool, Policy: PolicyOf(pool, r.Defaults), Now: r.Clock.Now()}
	spec, known := &lease.Spec, r.Cache
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
		if f.Reserved, err = reservedFor(ctx, known, lease); err != nil {
			return f, err
		}
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
func (r Reader) lookAtNode(ctx context.Context, name string, f Facts, n *note) (View[corev1.Node], error) {
	if name == "" {
		return View[corev1.Node]{}, nil
	}
	node, err := read[corev1.Node](ctx, r.Cache, "", name)
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
func (r Reader) lookForAgent(ctx context.Context, node string, f Facts, n *note) (time.Time, error) {
	works, err := agents.WorksOn(ctx, r.Cache, r.Namespace, node)
	if err != nil {
		return time.Time{}, err
	}
	return n.firstSeen(absentAgent, !works, f.Now), nil
}

func (r Reader) lookAtVerifier(ctx context.Context, name string, f Facts, n *note) (Verifier, error) {
	v := Verifier{AskedAt: n.assignment.askedAt, Changes: n.assignment.changes}
	if name == "" {
		return v, nil
	}
	node, alive, err := r.working(ctx, name)
	if err != nil {
		return v, err
	}
	v.Node, v.Alive = View[corev1.Node]{Known: true, Object: node}, alive
	v.AwaySince = n.assignment.sawAlive(v.Alive, f.Now)
	return v, nil
}

// working returns a node of the cache, or nil, and whether the node and its agent are Ready.
func (r Reader) working(ctx context.Context, name string) (node *corev1.Node, alive bool, err error) {
	node, err = read[corev1.Node](ctx, r.Cache, "", name)
	if err == nil && node != nil && agents.IsReady(node) {
		alive, err = agents.WorksOn(ctx, r.Cache, r.Namespace, name)
	}
	return node, alive, err
}

// lookAtOwner looks at the owner of a holder whose identity outlives its pods. Kubernetes' own
// StatefulSets are read by reader, all others from the API server.
func (r Reader) lookAtOwner(ctx context.Context, reader client.Reader, holder *v1alpha1.Holder) (Owner, error) {
	ref, ok := owner.OfHolder(holder)
	if !ok || !owner.KeepsName(holder) {
		return Owner{}, nil
	}
	var view owner.View
	if ref.IsApps() {
		set, err := read[appsv1.StatefulSet](ctx, reader, ref.Namespace, ref.Name)
		if err != nil {
			return Owner{}, err
		}
		view = owner.ViewOf(ref, set)
	} else {
		var err error
		if view, err = r.Owners.Look(ctx, holder); err != nil {
			return Owner{}, err
		}
		if view.Lack != "" && r.OwnerUnknown != nil {
			r.OwnerUnknown(string(view.Lack))
		}
	}
	o := Owner{Need: view.Need(holder.Pod), Unwatched: !ref.IsApps()}
	var err error
	if o.Asked, err = v1alpha1.ParseRetention(view.Annotations); err != nil {
		o.Unreadable = fmt.Sprintf("%s: %s", view.Ref, err)
	}
	return o, nil
}
