// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"iter"
	"net/netip"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func hasOffer(s *search) bool {
	_, ok := s.poolOfOffer()
	return ok
}

// poolOfOffer returns the pool of the address that is offered to this ADD alone.
func (s *search) poolOfOffer() (ipam.Candidate, bool) {
	for _, c := range s.family.Pools {
		if c.Pool.Name == s.d.Offer.Pool && c.Set.Contains(s.d.Offer.Addr) {
			return c, true
		}
	}
	return ipam.Candidate{}, false
}

// offered yields the address that came free and is offered to this ADD alone.
func offered(ctx context.Context, s *search) iter.Seq2[candidate, error] {
	c, _ := s.poolOfOffer()
	alone := s.family
	alone.Pools = []ipam.Candidate{c}
	return s.freeOf(ctx, alone, s.d.Offer.Addr)
}

// free yields addresses without a lease.
func free(ctx context.Context, s *search) iter.Seq2[candidate, error] {
	return s.freeOf(ctx, s.family)
}

// freeOf yields addresses without a lease. If only names some, it yields no other.
func (s *search) freeOf(ctx context.Context, f ipam.Family, only ...netip.Addr) iter.Seq2[candidate, error] {
	need := allocate.Need{
		Family: f, Only: only, Parent: s.d.Link.Parent.Name, Retention: s.d.retention, Share: s.a.Share(), Taken: s.heldHere(),
	}
	if s.source.skipsSighted {
		need.Sighted = func(_ *v1alpha1.IPPool, addr netip.Addr) bool { return s.a.Sighted(s.d.Link.Parent.Index, addr) }
	}
	return func(yield func(candidate, error) bool) {
		for c, err := range s.a.Allocator.Candidates(ctx, need) {
			if err != nil {
				yield(candidate{}, err)
				return
			}
			if s.rejected[c.Addr] {
				continue
			}
			next := candidateOf(c.Pool, c.Addr)
			next.write = func(ctx context.Context, _ *candidate) (*v1alpha1.IPLease, doubt, error) {
				l, err := c.Lease(ctx, s.d.i.who)
				return l, doubt{}, err
			}
			if !yield(next, nil) {
				return
			}
		}
	}
}

// heldHere returns a hint: the addresses of this segment that pods of this node hold. The hint
// avoids a collision with a living pod whose record was lost.
func (s *search) heldHere() func(*v1alpha1.IPPool, netip.Addr) bool {
	held := map[netip.Addr]bool{}
	for e := range s.a.Attachments.Bound() {
		for _, address := range e.Addresses {
			if e.ParentIndex == s.d.Link.Parent.Index {
				held[address.Addr] = true
			}
		}
	}
	return func(_ *v1alpha1.IPPool, addr netip.Addr) bool { return held[addr] }
}
