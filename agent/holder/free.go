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
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// exhaustedFirst and exhaustedMost bound the wait before an ADD looks again for a
	// free address in a full pool.
	exhaustedFirst = 50 * time.Millisecond
	exhaustedMost  = 2 * time.Second
	// answerMargin is the part of an ADD's deadline that is reserved for the answer.
	answerMargin = 3 * time.Second
)

// search is an ADD's search for an address of one family.
type search struct {
	*adding
	family ipam.Family
}

// bindFree binds a free address. If a pool is full only because of leases that are Warm or being
// verified, it waits for them, since a retry of the runtime is slow.
func (s search) bindFree(ctx context.Context) (boundAddress, error) {
	missed := false
	for wait := exhaustedFirst; ; wait = min(2*wait, exhaustedMost) {
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
		coming, comingErr := s.comingFree(ctx)
		switch {
		case comingErr != nil:
			return boundAddress{}, comingErr
		case coming == 0 && missed:
			return boundAddress{}, err
		case coming == 0:
			// A lease may have ended between the try and the count.
			missed = true
		case !waitFor(ctx, s.h.Clock, wait):
			return boundAddress{}, crowded(err, coming)
		}
	}
}

// isExhausted reports whether an error means that every pool is full.
func isExhausted(err error) bool {
	var none *ipam.NoPoolError
	return errors.As(err, &none) && none.Exhausted()
}

// tryFree leases candidates until one passes the probe (R4).
func (s search) tryFree(ctx context.Context, sighted func(*v1alpha1.IPPool, netip.Addr) bool) (boundAddress, error) {
	for c, err := range s.h.Allocator.Candidates(ctx, allocate.Wish{
		Family: s.family,
		Parent: s.link.Parent,
		Holder: s.who,
		// It is used after the end of the pod and its StatefulSet.
		Retention: RecordedRetention(s.pod),
		Share:     s.h.Share(),
		Sighted:   sighted,
		Taken:     s.heldHere(),
	}) {
		if err != nil {
			return boundAddress{}, err
		}
		// The intent is on disk before the lease exists: a crash in between leaks no lease.
		if err := s.intend(addressOf(c.Pool, c.Addr)); err != nil {
			s.trying = nil
			return boundAddress{}, err
		}
		l, err := c.Lease(ctx)
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

// comingFree counts the leases of the family's pools that will end within seconds.
func (s search) comingFree(ctx context.Context) (coming int, err error) {
	for _, c := range s.family.Pools {
		n, err := s.h.Leases.ComingFree(ctx, c.Pool.Name)
		if err != nil {
			return 0, err
		}
		coming += n
	}
	return coming, nil
}

// crowded returns the error of a pool that is full only for the moment.
func crowded(err error, coming int) error {
	return refusal.New(refusal.TryAgain, "%w; %d of these leases are kept ready by other nodes or being verified, and will end", err, coming)
}

// waitFor waits d. It returns false at once if the call's deadline is too close.
func waitFor(ctx context.Context, c clock.Clock, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(c.Now()) < d+answerMargin {
		return false
	}
	return pause(ctx, c, d)
}
