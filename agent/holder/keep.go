// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/holder/refusal"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// keptLeases returns the leases that already belong to this pod: the leases of its name or virtual
// machine if these come back, or of an older sandbox of the same pod.
func (a *adding) keptLeases(ctx context.Context) ([]v1alpha1.IPLease, error) {
	if !owner.KeepsName(&a.who) && !a.hasOlderSandbox(ctx) {
		return nil, nil
	}
	all, err := a.h.Leases.OfIdentity(ctx, &a.who)
	if err != nil {
		return nil, fmt.Errorf("look for leases of %s: %w", owner.Identity(&a.who), err)
	}
	var kept []v1alpha1.IPLease
	for _, l := range all {
		holder := l.Spec.Holder
		if holder == nil || holder.Interface != a.who.Interface {
			continue
		}
		if owner.KeepsName(&a.who) && owner.Same(holder, &a.who) || holder.PodUID == a.who.PodUID {
			kept = append(kept, l)
		}
	}
	return kept, nil
}

// hasOlderSandbox reports whether the interface may have had an address in another sandbox of the
// same pod. Only then do leases have to be searched for.
func (a *adding) hasOlderSandbox(ctx context.Context) bool {
	if a.h.Expected.Has(a.who.PodUID, a.who.Interface) || len(a.pod.Status.PodIPs) > 0 {
		return true
	}
	for _, e := range a.h.Journal.OfPod(a.who.PodUID) {
		if e.Interface == a.who.Interface && e.ContainerID != a.who.ContainerID {
			return true
		}
	}
	return hasLeaseOf(ctx, a.h.Cache, &a.who)
}

// hasLeaseOf reports whether the cache shows a lease of this node for an interface of a pod.
func hasLeaseOf(ctx context.Context, cache client.Reader, who *v1alpha1.Holder) bool {
	leases := &v1alpha1.IPLeaseList{}
	if err := cache.List(ctx, leases, client.UnsafeDisableDeepCopy); err != nil {
		return true // a search past the cache decides
	}
	for i := range leases.Items {
		l := leases.Items[i].Spec.Holder
		if l != nil && l.PodUID == who.PodUID && l.Interface == who.Interface {
			return true
		}
	}
	return false
}

// keptRetry is the pause before an ADD checks again whether its kept address was quarantined.
const keptRetry = 200 * time.Millisecond

// keptFor yields the address that is kept for the pod. If its lease ends meanwhile, or a foreign host uses
// the address of a pod whose name keeps none, the pod gets another address.
func keptFor(_ context.Context, s *search) iter.Seq2[candidate, error] {
	if s.kept == nil {
		return none
	}
	c := candidate{pool: poolOf(s.family, s.kept), last: s.kept}
	c.address = addressOf(c.pool, s.kept.Spec.Addr())
	c.address.Static, c.address.Kept = s.keeps(c.pool), true
	c.await, c.write = s.awaitKept, s.takeOver
	return one(c)
}

// awaitKept waits while the address is still bound elsewhere. If it stays bound there, the ADD fails.
func (s *search) awaitKept(ctx context.Context, c *candidate) outcome {
	for s.boundElsewhere(c.last) {
		if !node.WaitFor(ctx, s.h.Clock, keptRetry) {
			return ends(refusal.New(refusal.TryAgain, "%s is kept for pod %s/%s and still bound to its predecessor on node %s",
				c.address.Addr, s.who.Namespace, s.who.Pod, c.last.Spec.NodeName))
		}
		l, err := s.h.Leases.Get(ctx, c.last.Name)
		if errors.Is(err, lease.ErrGone) {
			return outcome{notAddress, err}
		}
		if err != nil {
			return ends(err)
		}
		c.last = l
	}
	return outcome{}
}

// boundElsewhere reports whether only the controller can end the present binding.
func (a *adding) boundElsewhere(l *v1alpha1.IPLease) bool {
	return l.Spec.State == v1alpha1.StateBound &&
		(l.Spec.NodeName != a.h.Node || l.Spec.Holder.PodUID != a.who.PodUID)
}

// takeOver binds the kept lease to this pod.
func (s *search) takeOver(ctx context.Context, c *candidate) (*v1alpha1.IPLease, doubt, error) {
	l, err := s.h.Leases.TakeOver(ctx, c.last, s.leaseRequest(c))
	if errors.Is(err, lease.ErrNotMine) {
		// The DEL of the older sandbox may have ended meanwhile.
		now, getErr := s.h.Leases.Get(ctx, c.last.Name)
		if getErr == nil && now.Spec.State == v1alpha1.StateRetained {
			l, err = s.h.Leases.TakeOver(ctx, now, s.leaseRequest(c))
		}
	}
	return l, doubt{}, err
}

// leaseRequest has what a lease of a candidate's address records about the pod.
func (s *search) leaseRequest(c *candidate) lease.Request {
	return lease.Request{
		Pool: c.pool.Name, Network: c.pool.Spec.Network, Addr: c.address.Addr, Parent: s.link.Parent, Holder: s.who,
		Retention: s.retention(c.pool),
	}
}

func poolOf(f ipam.Family, l *v1alpha1.IPLease) *v1alpha1.IPPool {
	for _, c := range f.Pools {
		if c.Pool.Name == l.Spec.Pool {
			return c.Pool
		}
	}
	return nil
}

// keeps reports whether an address of a pool is kept for the name of the pod.
func (a *adding) keeps(pool *v1alpha1.IPPool) bool {
	mode, _ := a.asked.Mode(pool, a.h.StatefulSet)
	return owner.KeepsName(&a.who) && mode != v1alpha1.StatefulSetOff
}

// retention returns the retention that the lease of an address of a pool records. It is used after
// the end of the pod and its StatefulSet.
func (a *adding) retention(pool *v1alpha1.IPPool) *v1alpha1.LeaseRetention {
	if owner.KeepsName(&a.who) && !a.keeps(pool) {
		return &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}
	}
	return a.asked.Retention
}
