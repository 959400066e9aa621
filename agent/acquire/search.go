// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// search is a search for an address of one family.
type search struct {
	a *Acquirer
	d *round
	// source is the one that is being asked.
	source Source
	// family has the pools that are left.
	family ipam.Family
	// kept is the lease that is kept for the pod, or nil.
	kept *v1alpha1.IPLease
	// obeyed are the rules to which the pools of family were reduced.
	obeyed rules
	// rejected are the addresses that were tried and rejected, and why all reasons, of pools too.
	rejected map[netip.Addr]bool
	why      error
}

func (r *round) search(f ipam.Family) (s *search, left []Left) {
	s = &search{a: r.a, d: r, family: f, rejected: map[netip.Addr]bool{}}
	s.kept, left = r.Kept.Of(f.IPv6)
	return s, left
}

// mayFind returns an error if the ADD waits for the pools of a family, and none of them has an
// address for it now. So the ADD does not take an address of another family in vain.
func (r *round) mayFind() error {
	for _, f := range r.Choice.Families {
		s, _ := r.search(f)
		if slices.ContainsFunc(Sources(), func(of Source) bool { return of.obeys < queue && of.concern(s) }) {
			continue
		}
		if _, err := r.outsideQueue(f); err != nil {
			r.full = f.Pools
			return err
		}
	}
	return nil
}

// outsideQueue returns the family without the pools for which this ADD, or an earlier one of this node,
// waits: of such a pool, an ADD gets only the address that is offered to it.
func (r *round) outsideQueue(f ipam.Family) (ipam.Family, error) {
	return f.Without(func(c ipam.Candidate) (*ipam.Rejection, error) {
		why, closed := r.Place.Closed(c.Pool.Name, c.Only...)
		if !closed {
			return nil, nil
		}
		return &ipam.Rejection{Pool: c.Pool.Name, Reason: ipam.Exhausted, Detail: why}, nil
	})
}

// errNoSource is not reached: the last sources end with the reason why there is no address.
var errNoSource = errors.New("no source has an address")

// win wins an address of a family: it asks the sources in their order.
func (r *round) win(ctx context.Context, f ipam.Family) (Won, error) {
	s, left := r.search(f)
	if s.kept != nil && PoolOf(f, s.kept) == nil { // not reached: decide reuses only leases of pools that serve the pod
		return Won{}, refusal.New(refusal.NoPool, "%s is kept for pod %s/%s, but its pool %s does not serve the pod",
			s.kept.Spec.Address, r.Holder.Namespace, r.Holder.Pod, s.kept.Spec.Pool)
	}
	r.full = nil
	why := errNoSource
	for _, s.source = range Sources() {
		if err := s.obey(ctx, s.source.obeys); err != nil {
			return Won{}, s.joined(err)
		}
		w, o := s.ask(ctx)
		switch after(o.result, s.source) {
		case answerWith:
			if s.source.learns && s.kept == nil && f.Wish == nil {
				r.a.Warm.Used(w.Pool.Name, r.Link.Parent.Name)
			}
			r.tellLeft(left, w)
			return w, nil
		case giveUp:
			return Won{}, s.joined(o.why)
		}
		if o.why != nil {
			why = o.why
		}
	}
	return Won{}, s.joined(why)
}

// joined returns the reason for the end of a search that has found its pools full. An address that was
// rejected may be the one that the pod gets next, so the ADD does not wait.
func (s *search) joined(why error) error {
	if len(s.rejected) > 0 && refusal.IsExhausted(why) {
		return s.why
	}
	return why
}

// obey removes the pools that the rules exclude. If none is left, it returns a *ipam.NoPoolError.
func (s *search) obey(ctx context.Context, r rules) (err error) {
	if s.obeyed < limits && r >= limits {
		if s.family, err = s.family.Open(); err != nil {
			return err
		}
		if s.family, err = s.withinLimits(ctx); err != nil {
			return err
		}
		s.d.full = s.family.Pools
	}
	if s.obeyed < queue && r >= queue {
		if s.family, err = s.d.outsideQueue(s.family); err != nil {
			return err
		}
	}
	s.obeyed = max(s.obeyed, r)
	return nil
}

// ask tries the candidates of the source until one is won or the ADD has to end. The source begins
// again without a pool that was rejected.
func (s *search) ask(ctx context.Context) (Won, outcome) {
	if !s.source.concern(s) { // the rules, or a rejection, may have excluded the pool of its address
		return Won{}, outcome{result: lost}
	}
	for c, err := range s.source.find(ctx, s) {
		if refusal.Waits(err) {
			return Won{}, outcome{usedUp, err}
		}
		if err != nil {
			return Won{}, ends(err)
		}
		t := &try{a: s.a, d: s.d, s: s, i: s.d.i, candidate: c}
		w, o := t.run(ctx)
		if after(o.result, s.source) != nextCandidate {
			return w, o
		}
		if o.result == lost {
			s.d.i.trying = nil
			continue
		}
		if err := t.passOver(ctx, o.why); err != nil {
			return Won{}, ends(err)
		}
		if err := s.reject(&c, o); err != nil {
			return Won{}, ends(err)
		}
		if o.result == poolRejected {
			return s.ask(ctx)
		}
	}
	return Won{}, outcome{result: lost}
}

// reject excludes a candidate, or its pool. It returns all reasons if no pool is left.
func (s *search) reject(c *candidate, o outcome) (err error) {
	if s.why == nil {
		s.why = o.why
	} else {
		s.why = fmt.Errorf("%w; %w", s.why, o.why)
	}
	if o.result == rejected {
		s.rejected[c.address.Addr] = true
		return nil
	}
	without := func(f ipam.Candidate) (*ipam.Rejection, error) {
		if f.Pool.Name != c.pool.Name {
			return nil, nil
		}
		return &ipam.Rejection{Pool: c.pool.Name, Reason: ipam.PassedOver, Detail: o.why.Error()}, nil
	}
	if s.family, err = s.family.Without(without); err != nil {
		return s.why
	}
	s.d.full = slices.DeleteFunc(slices.Clone(s.d.full), func(f ipam.Candidate) bool { return f.Pool.Name == c.pool.Name })
	return nil
}

// tellLeft reports in events of the pod which addresses it has left, and why.
func (r *round) tellLeft(left []Left, w Won) {
	for _, l := range left {
		r.a.Events.Eventf(r.Pod, nil, corev1.EventTypeNormal, "AddressLeft", "Bind",
			"%s replaces %s: %s", w.Address.Addr, l.Spec.Address, l.Why)
	}
}
