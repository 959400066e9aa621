// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"iter"
	"net/netip"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// source is a kind of addresses that an ADD may win. The differences between the sources stand here
// and in their list.
type source struct {
	name string
	// find yields the candidates. An error ends the search, unless it says that the pools are full.
	find func(context.Context, *search) iter.Seq2[candidate, error]
	// obeys are the rules that rule pools out.
	obeys rules
	proof proof
	// alone: if the source has candidates, no other source is asked.
	alone bool
	// skipsSighted: an address that another host was heard to use a moment ago is no candidate.
	skipsSighted bool
	// learns: the address counts as use of the pair of pool and parent, for which addresses are kept Warm.
	learns bool
	// refuses: a rule that speaks against a candidate ends the ADD. Otherwise the next source is asked.
	refuses bool
}

// sources are all sources in the order in which an ADD asks them. A source that does not concern the
// interface yields nothing.
func sources() []source {
	return []source{
		{name: "behind", find: behind, proof: byTurn, refuses: true},
		{name: "kept", find: keptFor, proof: byLastHolder, refuses: true},
		{name: "offered", find: offered, obeys: limits, proof: byProbe, alone: true, learns: true, refuses: true},
		{name: "requested Warm", find: requestedWarm, obeys: limits, proof: byWatch, refuses: true},
		{name: "requested", find: requested, obeys: limits, proof: byProbe, refuses: true},
		{name: "Warm", find: ready, obeys: turns, proof: byWatch, learns: true, refuses: true},
		{name: "free", find: free, obeys: turns, proof: byProbe, skipsSighted: true, learns: true, refuses: true},
		// The speakers of sighted addresses may be gone by now: the probe decides.
		{name: "sighted", find: free, obeys: turns, proof: byProbe, learns: true, refuses: true},
		// The pods of this node come before its stock.
		{name: "unready Warm", find: anyWarm, obeys: turns, proof: byWatch, learns: true, refuses: true},
	}
}

// rules rule pools out. Each value includes those before it.
type rules int

const (
	anyPool rules = iota // also one that hands out no new address
	limits               // maxPerNamespace
	turns                // the earlier ADDs that wait for the pool
)

// proof is the way in which an address is proven to have no other speaker.
type proof int

const (
	// byProbe: probe, then claim (R4). A host without a record answers the probe, so no claim is ever
	// sent against it. It keeps the address, and the next candidate is tried.
	byProbe proof = iota
	// byWatch: the address was proven, and is watched since. If no doubt came up, it is claimed after the
	// answer; otherwise it is proven by a probe.
	byWatch
	// byLastHolder: claim, then ask (R8). The last holder is on record, and must fall silent. If somebody
	// answers, a pod whose name keeps the address ends its ADD.
	byLastHolder
	// byTurn: the last holder still has the address, so the pod stays fenced (R15). No lease is written.
	byTurn
)

// candidate is an address of a source, with the API write that makes it the pod's.
type candidate struct {
	pool    *v1alpha1.IPPool
	address journal.Address
	// last is the lease as the last holder left it, nil if there is none.
	last *v1alpha1.IPLease
	// await waits until the last holder lets go, and reads last again. It may be nil.
	await func(context.Context, *candidate) outcome
	// write also returns the evidence against an address that was watched. It is nil if nothing is written.
	write func(context.Context, *candidate) (*v1alpha1.IPLease, doubt, error)
	// over ends the try. written: the lease is no longer what it was. It may be nil.
	over func(written bool)
}

// doubt is evidence against an address that came up while its lease was written.
type doubt struct {
	segment.Doubt
	who segment.Answer
}

// none is a source without candidates, and one a source with one candidate.
func none(func(candidate, error) bool) {}

func one(c candidate) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) { yield(c, nil) }
}

// search is an ADD's search for an address of one family.
type search struct {
	*adding
	// source is the one that is being asked.
	source
	family ipam.Family
	// kept is the lease that is kept for the pod, or nil.
	kept *v1alpha1.IPLease
	// obeyed are the rules to which the pools of family were reduced.
	obeyed rules
}

// obey reduces the pools of the family to those that the rules leave. If there is none, the error is a
// *ipam.NoPoolError.
func (s *search) obey(ctx context.Context, r rules) (err error) {
	if s.obeyed < limits && r >= limits {
		if s.family, err = s.family.Open(); err != nil {
			return err
		}
		if s.family, err = s.withinLimits(ctx); err != nil {
			return err
		}
		s.full = s.family.Pools
	}
	if s.obeyed < turns && r >= turns {
		if s.family, err = s.inTurn(s.family); err != nil {
			return err
		}
	}
	s.obeyed = max(s.obeyed, r)
	return nil
}

// offered yields the address that came free and is offered to this ADD alone.
func offered(ctx context.Context, s *search) iter.Seq2[candidate, error] {
	c, ok := s.offer(s.family)
	if !ok {
		return none
	}
	alone := s.family
	alone.Pools = []ipam.Candidate{c}
	return s.freeOf(ctx, alone, s.queued.offer.Addr)
}

// requested yields the address that CNI or Multus requests.
func requested(ctx context.Context, s *search) iter.Seq2[candidate, error] {
	if !s.family.Requested.IsValid() {
		return none
	}
	return free(ctx, s)
}

// free yields addresses without a lease.
func free(ctx context.Context, s *search) iter.Seq2[candidate, error] {
	return s.freeOf(ctx, s.family, netip.Addr{})
}

// freeOf yields addresses without a lease, or only one.
func (s *search) freeOf(ctx context.Context, f ipam.Family, only netip.Addr) iter.Seq2[candidate, error] {
	need := allocate.Need{
		Family: f, Only: only, Parent: s.link.Parent, Retention: s.retention, Share: s.h.Share(), Taken: s.heldHere(),
	}
	if s.skipsSighted {
		need.Sighted = func(_ *v1alpha1.IPPool, addr netip.Addr) bool { return s.h.Sighted(s.link.ParentIndex, addr) }
	}
	return func(yield func(candidate, error) bool) {
		for c, err := range s.h.Allocator.Candidates(ctx, need) {
			if err != nil {
				yield(candidate{}, err)
				return
			}
			next := candidate{pool: c.Pool, address: addressOf(c.Pool, c.Addr)}
			next.write = func(ctx context.Context, _ *candidate) (*v1alpha1.IPLease, doubt, error) {
				l, err := c.Lease(ctx, s.who)
				return l, doubt{}, err
			}
			if !yield(next, nil) {
				return
			}
		}
	}
}

// isExhausted reports whether an error means that every pool is full.
func isExhausted(err error) bool {
	var none *ipam.NoPoolError
	return errors.As(err, &none) && none.Exhausted()
}

func addressOf(pool *v1alpha1.IPPool, addr netip.Addr) journal.Address {
	return journal.Address{
		Addr: addr, Pool: pool.Name, Network: pool.Spec.Network, LeaseName: v1alpha1.LeaseName(pool.Spec.Network, addr),
	}
}

// heldHere returns a hint: the addresses of this segment that pods of this node hold. The hint
// avoids a collision with a living pod whose record was lost.
func (s *search) heldHere() func(*v1alpha1.IPPool, netip.Addr) bool {
	held := map[netip.Addr]bool{}
	for e := range s.h.Bound() {
		for _, address := range e.Addresses {
			if e.ParentIndex == s.link.ParentIndex {
				held[address.Addr] = true
			}
		}
	}
	return func(_ *v1alpha1.IPPool, addr netip.Addr) bool { return held[addr] }
}
