// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// answerMargin is the part of an ADD's deadline that is reserved for the answer.
const answerMargin = 3 * time.Second

// search is an ADD's search for an address of one family.
type search struct {
	*adding
	family ipam.Family
	// only is the one address that the search may find, or the zero value.
	only netip.Addr
}

// find binds a free address or a Warm lease of this node. If every pool is full, it notes them.
func (s search) find(ctx context.Context) (boundAddress, error) {
	s, err := s.withinLimits(ctx)
	if err != nil {
		return boundAddress{}, err
	}
	b, err := s.findInTurn(ctx)
	if isExhausted(err) {
		s.full = s.family.Pools
	}
	return b, err
}

func (s search) findInTurn(ctx context.Context) (boundAddress, error) {
	if own, ok := s.offered(); ok {
		return own.tryFree(ctx, nil)
	}
	if !s.family.Requested.IsValid() {
		var err error
		if s, err = s.inTurn(); err != nil {
			return boundAddress{}, err
		}
	}
	b, ok, err := s.bindReady(ctx)
	if err == nil && !ok {
		b, err = s.bindFree(ctx)
	}
	return b, err
}

// bindFree binds a free address. If every pool is full, it binds any Warm lease of this node.
func (s search) bindFree(ctx context.Context) (boundAddress, error) {
	// First try without the addresses that were heard recently. Then try with them, since their
	// speakers may be gone by now: the probe decides.
	b, err := s.tryFree(ctx, func(_ *v1alpha1.IPPool, addr netip.Addr) bool { return s.h.Sighted(s.link.ParentIndex, addr) })
	if isExhausted(err) {
		b, err = s.tryFree(ctx, nil)
	}
	if !isExhausted(err) {
		return b, err
	}
	if b, ok, err := s.bindAnyWarm(ctx); ok || err != nil {
		return b, err
	}
	return boundAddress{}, err
}

// isExhausted reports whether an error means that every pool is full.
func isExhausted(err error) bool {
	var none *ipam.NoPoolError
	return errors.As(err, &none) && none.Exhausted()
}

// tryFree leases candidates until one passes the probe (R4).
func (s search) tryFree(ctx context.Context, sighted func(*v1alpha1.IPPool, netip.Addr) bool) (boundAddress, error) {
	for c, err := range s.h.Allocator.Candidates(ctx, allocate.Wish{
		Family:    s.family,
		Parent:    s.link.Parent,
		Retention: s.retention,
		Share:     s.h.Share(),
		Only:      s.only,
		Sighted:   sighted,
		Taken:     s.heldHere(),
	}) {
		if err != nil {
			return boundAddress{}, err
		}
		if err := s.checkRoutes(ctx, s.family, c.Pool); err != nil {
			return boundAddress{}, err
		}
		s.askGateway(ctx, c.Pool)
		// The intent is on disk before the lease exists: a crash in between leaks no lease.
		if err := s.intend(ctx, c.Pool, addressOf(c.Pool, c.Addr)); err != nil {
			s.trying = nil
			return boundAddress{}, err
		}
		l, err := c.Lease(ctx, s.who)
		if err != nil && !errors.Is(err, lease.ErrUncertain) {
			// No lease was written: the undo needs no API server for it.
			s.trying = nil
		}
		if errors.Is(err, lease.ErrTaken) {
			continue
		}
		if err != nil {
			return boundAddress{}, err
		}
		if err := s.leased(l); err != nil {
			return boundAddress{}, err
		}
		if err := s.confirmLimit(ctx, c.Pool, l); err != nil {
			return boundAddress{}, err
		}
		b, ok, err := s.prove(ctx, c.Pool, l)
		if ok || err != nil {
			return b, err
		}
		s.trying = nil // another host uses the address
	}
	return boundAddress{}, errNoCandidate
}

// errNoCandidate is not reached: the last candidate comes with an error.
var errNoCandidate = errors.New("the search for an address ended without a reason")

func addressOf(pool *v1alpha1.IPPool, addr netip.Addr) journal.Address {
	return journal.Address{
		Addr: addr, Pool: pool.Name, Network: pool.Spec.Network, LeaseName: v1alpha1.LeaseName(pool.Spec.Network, addr),
	}
}

// heldHere returns a hint: the addresses of this segment that pods of this node hold. The hint
// avoids a collision with a living pod whose record was lost.
func (s search) heldHere() func(*v1alpha1.IPPool, netip.Addr) bool {
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

// waitFor waits d. It returns false at once if the call's deadline is too close.
func waitFor(ctx context.Context, c clock.Clock, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(c.Now()) < d+answerMargin {
		return false
	}
	return pause(ctx, c, d)
}
