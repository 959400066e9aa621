// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"errors"
	"iter"
	"net"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// keptRetry is the pause before an ADD checks again whether its kept address was quarantined.
const keptRetry = 200 * time.Millisecond

func hasKept(s *search) bool { return s.kept != nil }

// keptFor yields the address that is kept for the pod. If its lease ends while the ADD waits for it, or
// a foreign host uses the address and the pod's name keeps no address, the pod gets another address.
func keptFor(_ context.Context, s *search) iter.Seq2[candidate, error] {
	c := candidateOf(PoolOf(s.family, s.kept), s.kept.Spec.Addr())
	c.address.Static, c.address.Kept = s.d.keeps(c.pool), true
	c.last, c.awaitRelease, c.write = s.kept, s.awaitEnd, s.takeOver
	return one(c, nil)
}

// awaitEnd waits while the address is still bound elsewhere, or held for a pod of another IPAM, which the agent of its
// node proves gone. If it stays so, the ADD fails.
func (s *search) awaitEnd(ctx context.Context, c *candidate) outcome {
	for c.last.IsHold() || boundElsewhere(c.last, s.a.Self.Name, s.d.Holder.PodUID) {
		if c.last.IsHold() {
			s.a.Releaser.Expected.Add(c.last.Spec.Holder) // so that its agent knows that the old sandbox has ended
		}
		if !attachment.WaitFor(ctx, s.a.Clock, keptRetry) {
			if c.last.IsHold() {
				return ends(refusal.New(refusal.TryAgain, "%s is held for pod %s/%s: %s", c.address.Addr, s.d.Holder.Namespace, s.d.Holder.Pod, c.last.Spec.Message))
			}
			return ends(refusal.New(refusal.TryAgain, "%s is kept for pod %s/%s and still bound to its predecessor on node %s",
				c.address.Addr, s.d.Holder.Namespace, s.d.Holder.Pod, c.last.Spec.NodeName))
		}
		l, err := s.a.Leases.Get(ctx, c.last.Name)
		if errors.Is(err, lease.ErrGone) {
			return outcome{lost, err}
		}
		if err != nil {
			return ends(err)
		}
		c.last = l
	}
	return outcome{}
}

// boundElsewhere reports whether only the controller can end the present binding.
func boundElsewhere(l *v1alpha1.IPLease, node, podUID string) bool {
	return l.Spec.State == v1alpha1.StateBound && (l.Spec.NodeName != node || l.Spec.Holder.PodUID != podUID)
}

// takeOver binds the kept lease to this pod.
func (s *search) takeOver(ctx context.Context, c *candidate) (*v1alpha1.IPLease, doubt, error) {
	l, err := s.a.Leases.TakeOver(ctx, c.last, s.leaseRequest(c))
	if errors.Is(err, lease.ErrNotMine) {
		// The DEL of the older sandbox may have ended meanwhile, or the write of an ADD that was given up may
		// have come true.
		now, getErr := s.a.Leases.Get(ctx, c.last.Name)
		if getErr == nil && s.isGivenUp(now) {
			c.last = now
		}
		if getErr == nil && (now == c.last || now.Spec.State == v1alpha1.StateRetained) {
			l, err = s.a.Leases.TakeOver(ctx, now, s.leaseRequest(c))
		}
	}
	return l, doubt{}, err
}

// isGivenUp reports whether a lease is bound here to a sandbox of this pod that the journal does not know.
func (s *search) isGivenUp(l *v1alpha1.IPLease) bool {
	h := l.Spec.Holder
	if l.Spec.State != v1alpha1.StateBound || boundElsewhere(l, s.a.Self.Name, s.d.Holder.PodUID) {
		return false
	}
	_, known := s.a.Attachments.Get(h.ContainerID, h.Interface)
	return !known
}

// leaseRequest returns the data of the pod for the lease of a candidate's address.
func (s *search) leaseRequest(c *candidate) lease.Request {
	return lease.Request{
		Pool: c.pool.Name, Network: c.pool.Spec.Network, Addr: c.address.Addr, Parent: s.d.Link.Parent.Name, Holder: s.d.i.who,
		Retention: s.d.retention(c.pool),
	}
}

// keeps reports whether an address of a pool is kept for the name of the pod.
func (r *round) keeps(pool *v1alpha1.IPPool) bool {
	mode, _ := r.Asked.Mode(pool, r.a.StatefulSet)
	return owner.KeepsName(&r.Holder) && mode != v1alpha1.StatefulSetOff
}

// retention returns the retention that the lease of an address of a pool records. It is used after
// the end of the pod and its StatefulSet.
func (r *round) retention(pool *v1alpha1.IPPool) *v1alpha1.LeaseRetention {
	if owner.KeepsName(&r.Holder) && !r.keeps(pool) {
		return &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}
	}
	return r.Asked.Retention
}

// isStandby reports whether the pod is the target of a live migration and its source still has the address.
func isStandby(s *search) bool { return s.kept != nil && s.d.isBehind(s.kept) }

func (r *round) isBehind(l *v1alpha1.IPLease) bool {
	return lease.IsStandby(&r.Holder, owner.IsTarget(r.Pod), r.a.Self.Name, &l.Spec)
}

// guestsMAC returns the MAC of the guest that migrates to the interface, or nil. Its first address may be a new one.
func (r *round) guestsMAC() net.HardwareAddr {
	for _, l := range r.Kept.reused {
		if r.isBehind(l) {
			return l.LastMAC()
		}
	}
	return nil
}

// behind yields the address that the source of a live migration still uses.
func behind(_ context.Context, s *search) iter.Seq2[candidate, error] {
	token, err := lease.Token(s.kept)
	c := candidateOf(PoolOf(s.family, s.kept), s.kept.Spec.Addr())
	c.address.Static, c.address.Behind = s.d.keeps(c.pool), token
	return one(c, err)
}

// one yields one candidate, or an error.
func one(c candidate, err error) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) { yield(c, err) }
}
