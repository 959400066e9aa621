// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"time"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/warm"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// freshDoubt bounds the age of the kernel's answer about a proof when the lease is
// bound. A write takes milliseconds, and longer if the API server is slow.
const freshDoubt = 50 * time.Millisecond

// bindReady binds a Warm lease that is ready, in the order of the pools: the lease of
// a later pool only if the earlier pools look full. A requested address of this node's
// Warm leases is bound also if it is not ready.
func (s search) bindReady(ctx context.Context) (b boundAddress, ok bool, err error) {
	for _, c := range s.family.Pools {
		if c.Closed != nil {
			continue
		}
		if s.family.Requested.IsValid() || c.Pool.Stock() > 0 {
			wish := s.warmWish(c)
			wish.Addr, wish.Any = s.family.Requested, s.family.Requested.IsValid()
			if b, ok, err = s.bindWarm(ctx, c.Pool, wish); ok || err != nil {
				return b, ok, err
			}
		}
		// A pool that the controller has not counted yet counts as not full.
		if status := &c.Pool.Status; status.Free > 0 || status.Total == 0 {
			break
		}
	}
	return boundAddress{}, false, nil
}

// bindAnyWarm binds any Warm lease of this node, ready or not: its own pods come first.
func (s search) bindAnyWarm(ctx context.Context) (b boundAddress, ok bool, err error) {
	for _, c := range s.family.Pools {
		if c.Closed != nil {
			continue
		}
		wish := s.warmWish(c)
		wish.Any = true
		if b, ok, err = s.bindWarm(ctx, c.Pool, wish); ok || err != nil {
			break
		}
	}
	return b, ok, err
}

func (s search) warmWish(c ipam.Candidate) warm.Wish {
	return warm.Wish{
		Pool: c.Pool.Name, Parent: s.link.Parent, ParentIndex: s.link.ParentIndex,
		Mode: c.Pool.ConflictMode(), Has: c.Set.Contains,
	}
}

// bindWarm binds one of the Warm leases that fit the wish; ok is false if there is
// none. Leases that have ended meanwhile are skipped.
func (s search) bindWarm(ctx context.Context, pool *v1alpha1.IPPool, wish warm.Wish) (b boundAddress, ok bool, err error) {
	for {
		w, ok := s.h.Warm.Take(wish)
		if !ok {
			return boundAddress{}, false, nil
		}
		if err := s.checkRoutes(ctx, s.family, pool); err != nil {
			s.h.Warm.PutBack(w)
			return boundAddress{}, false, err
		}
		s.askGateway(ctx, pool)
		l, doubt, err := s.writeBinding(ctx, pool, w)
		if errors.Is(err, lease.ErrNotMine) || errors.Is(err, lease.ErrGone) {
			s.h.Warm.Ended(w)
			s.trying = nil
			continue
		}
		if err != nil {
			// If the lease was written in spite of the error, the next Take notices it.
			s.h.Warm.PutBack(w)
			return boundAddress{}, false, err
		}
		b, ok, err = s.use(ctx, pool, l, doubt)
		s.h.Warm.Ended(w)
		if ok || err != nil {
			return b, ok, err
		}
		s.trying = nil // another host uses the address
	}
}

// doubt is evidence against an address that came up while its lease was bound.
type doubt struct {
	segment.Doubt
	who segment.Answer
}

// writeBinding binds a Warm lease to this pod: one write, journalled before. Meanwhile it asks the
// kernel whether the proof of the address still holds. After a slow write it asks again.
func (s search) writeBinding(ctx context.Context, pool *v1alpha1.IPPool, w warm.Stocked) (*v1alpha1.IPLease, doubt, error) {
	addr := w.Spec.Addr()
	if err := s.intend(ctx, pool, addressOf(pool, addr)); err != nil {
		return nil, doubt{}, err
	}
	asked := s.h.Clock.Now()
	doubts := make(chan doubt, 1)
	go func() { doubts <- s.doubt(w) }()
	l, err := s.h.Leases.BindWarm(ctx, w.IPLease, lease.Request{
		Pool: pool.Name, Network: pool.Spec.Network, Addr: addr, Parent: s.link.Parent, Holder: s.who,
		Retention: s.retention(pool),
	})
	found := <-doubts
	if err == nil && found.Doubt == segment.DoubtNone && s.h.Clock.Since(asked) > freshDoubt {
		found = s.doubt(w)
	}
	return l, found, err
}

// doubt asks the kernel about a Warm lease. A lease that was not ready is unproven.
func (s search) doubt(w warm.Stocked) (found doubt) {
	if !w.Ready {
		return doubt{Doubt: segment.DoubtUnproven}
	}
	found.Doubt, found.who = s.h.Warm.Doubt(w)
	return found
}

// use lets the pod use the address of a lease that was Warm. An address in doubt is proven first,
// like a free address (R4). Other addresses are claimed after the answer. ok is false if another
// host uses the address.
func (s search) use(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease, d doubt) (b boundAddress, ok bool, err error) {
	if err := s.leased(l); err != nil {
		return boundAddress{}, false, err
	}
	if err := s.confirmLimit(ctx, pool, l); err != nil {
		return boundAddress{}, false, err
	}
	switch {
	case d.Doubt == segment.DoubtSpoken && pool.ConflictMode() != v1alpha1.ModeObserve:
		return boundAddress{}, false, s.giveWay(ctx, pool, l, d.who)
	case d.Doubt != segment.DoubtNone:
		return s.prove(ctx, pool, l)
	}
	c, err := s.install(pool)
	return boundAddress{pool: pool, address: *s.trying, unclaimed: &c}, err == nil, err
}
