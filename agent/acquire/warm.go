// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/warm"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// freshDoubt bounds the age of the kernel's answer about a proof when the lease is
// bound. A write takes milliseconds, and longer if the API server is slow.
const freshDoubt = 50 * time.Millisecond

// isRequested reports whether the interface insists on an address, by CNI, Multus or an annotation.
func isRequested(s *search) bool { return s.family.Requested.IsValid() }

// requestedWarm yields the requested address if it is one of this node's Warm leases, ready or not.
func requestedWarm(_ context.Context, s *search) iter.Seq2[candidate, error] {
	return s.stocked(true, func(c ipam.Candidate) (ask, last bool) { return true, true })
}

// ready yields the ready Warm leases: those of a later pool only if the earlier ones look full.
func ready(_ context.Context, s *search) iter.Seq2[candidate, error] {
	return s.stocked(false, func(c ipam.Candidate) (ask, last bool) {
		if s.family.Wish == nil && len(c.Only) > 0 {
			return c.Pool.Stock() > 0, looksFree(c)
		}
		// A pool that the controller has not counted yet counts as not full.
		return c.Pool.Stock() > 0, c.Pool.Status.Free > 0 || c.Pool.Status.Total == 0
	})
}

// looksFree reports whether one of the addresses that are kept for the namespace of the pod looks free. The counts of
// the pool say nothing about them.
func looksFree(c ipam.Candidate) bool {
	inUse, err := poolset.DecodeBitmap(c.Pool.Status.InUse)
	return err != nil || slices.ContainsFunc(c.Only, func(addr netip.Addr) bool {
		offset, ok := poolset.Offset(c.Subnet, addr)
		return !ok || !inUse.Has(offset)
	})
}

// anyWarm yields the Warm leases of this node, ready or not.
func anyWarm(_ context.Context, s *search) iter.Seq2[candidate, error] {
	return s.stocked(true, func(c ipam.Candidate) (ask, last bool) { return true, false })
}

// stocked yields Warm leases. pools says whether to ask a pool, and whether it is the last one.
func (s *search) stocked(unready bool, pools func(ipam.Candidate) (ask, last bool)) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		for _, c := range s.family.Pools {
			ask, last := pools(c)
			for ask {
				w, ok := s.a.Warm.Take(warm.Wish{
					Pool: c.Pool.Name, Parent: s.d.Link.Parent.Name, ParentIndex: s.d.Link.Parent.Index,
					Mode: c.Pool.ConflictMode(), Addr: s.family.Requested, Any: unready,
					Has: func(addr netip.Addr) bool { return c.Set.Contains(addr) && !s.rejected[addr] },
				})
				if !ok {
					break
				}
				if !yield(s.ofStock(c.Pool, w), nil) {
					return
				}
			}
			if last {
				return
			}
		}
	}
}

func (s *search) ofStock(pool *v1alpha1.IPPool, w warm.Stocked) candidate {
	c := candidateOf(pool, w.Spec.Addr())
	c.write = func(ctx context.Context, c *candidate) (*v1alpha1.IPLease, doubt, error) {
		return s.bindWarm(ctx, c, w)
	}
	c.over = func(written bool) {
		if written {
			s.a.Warm.Ended(w)
		} else { // if the lease was written in spite of an error, the next Take notices it
			s.a.Warm.PutBack(w)
		}
	}
	return c
}

// bindWarm binds a Warm lease to this pod. Meanwhile it asks the kernel whether the proof of the
// address still holds. After a slow write it asks again.
func (s *search) bindWarm(ctx context.Context, c *candidate, w warm.Stocked) (*v1alpha1.IPLease, doubt, error) {
	asked := s.a.Clock.Now()
	doubts := make(chan doubt, 1)
	go func() { doubts <- s.doubtOf(w) }()
	l, err := s.a.Leases.BindWarm(ctx, w.IPLease, s.leaseRequest(c))
	found := <-doubts
	if err == nil && found.Doubt == segment.DoubtNone && s.a.Clock.Since(asked) > freshDoubt {
		found = s.doubtOf(w)
	}
	return l, found, err
}

// doubtOf asks the kernel about a Warm lease. A lease that was not ready is unproven.
func (s *search) doubtOf(w warm.Stocked) (found doubt) {
	if !w.Ready {
		return doubt{Doubt: segment.DoubtUnproven}
	}
	found.Doubt, found.who = s.a.Warm.Doubt(w)
	return found
}
