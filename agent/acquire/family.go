// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Try is one try of an ADD to win its addresses.
type Try struct {
	*Interface
	Pod *corev1.Pod
	// Asked is the request of the pod's annotations for an address that stays with its name.
	Asked v1alpha1.FixedAddress
	// Place in the queue for full pools. Offer is the address that came free for this ADD.
	Place *waiting.Place
	Offer waiting.Offer
	// Lap ends a step in the metric of the steps.
	Lap func(step string)
	// Full are the pools that the ADD waits for if it wins no address of the family.
	Full []ipam.Candidate

	// gateways receive the results of the checks of gateways, by pool.
	gateways map[string]<-chan error
}

// MayFind returns an error if the ADD waits for the pools of a family, and none of them has an
// address for it now. So the ADD does not take an address of another family in vain.
func (a *Try) MayFind(choice ipam.Choice, d Decision) error {
	for _, f := range choice.Families {
		l, _ := d.Of(f.IPv6)
		s := &search{Try: a, family: f, kept: l}
		if slices.ContainsFunc(Sources(), func(of Source) bool { return of.obeys < queue && of.concern(s) }) {
			continue
		}
		if _, err := a.outsideQueue(f); err != nil {
			a.Full = f.Pools
			return err
		}
	}
	return nil
}

// outsideQueue returns the family without the pools for which this ADD, or an earlier one of this node,
// waits: of such a pool, an ADD gets only the address that is offered to it.
func (a *Try) outsideQueue(f ipam.Family) (ipam.Family, error) {
	return f.Without(func(c ipam.Candidate) (*ipam.Rejection, error) {
		why, closed := a.Place.Closed(c.Pool.Name)
		if !closed {
			return nil, nil
		}
		return &ipam.Rejection{Pool: c.Pool.Name, Reason: ipam.Exhausted, Detail: why}, nil
	})
}

// offer returns the pool of the address that is offered to this ADD alone.
func (a *Try) offer(f ipam.Family) (ipam.Candidate, bool) {
	for _, c := range f.Pools {
		if c.Pool.Name == a.Offer.Pool && c.Set.Contains(a.Offer.Addr) {
			return c, true
		}
	}
	return ipam.Candidate{}, false
}

// errNoSource is not reached: the last sources end with the reason why there is no address.
var errNoSource = errors.New("no source has an address")

// Family wins an address of a family: it asks the sources in their order.
func (a *Try) Family(ctx context.Context, f ipam.Family, d Decision) (Bound, error) {
	l, left := d.Of(f.IPv6)
	if l != nil && PoolOf(f, l) == nil { // not reached: decide reuses only leases of pools that serve the pod
		return Bound{}, refusal.New(refusal.NoPool, "%s is kept for pod %s/%s, but its pool %s does not serve the pod",
			l.Spec.Address, a.Who.Namespace, a.Who.Pod, l.Spec.Pool)
	}
	s := &search{Try: a, family: f, kept: l}
	a.Full = nil
	why := errNoSource
	for _, s.Source = range Sources() {
		if err := s.obey(ctx, s.obeys); err != nil {
			return Bound{}, err
		}
		if !s.concern(s) { // the rules may have excluded the pool of its address
			continue
		}
		b, o := s.ask(ctx)
		if after(o, s.Source) == answerWith {
			if s.learns && l == nil && !s.family.Requested.IsValid() {
				a.h.Warm.Used(b.Pool.Name, a.Link.Parent.Name)
			}
			a.tellLeft(left, b)
			return b, nil
		}
		if after(o, s.Source) == giveUp {
			return Bound{}, o.why
		}
		if o.why != nil {
			why = o.why
		}
	}
	return Bound{}, why
}

// ask tries the candidates of the source until one is won or the ADD has to end.
func (s *search) ask(ctx context.Context) (Bound, outcome) {
	for c, err := range s.find(ctx, s) {
		if refusal.IsExhausted(err) {
			return Bound{}, outcome{usedUp, err}
		}
		if err != nil {
			return Bound{}, ends(err)
		}
		b, o := s.win(ctx, c)
		if after(o, s.Source) != nextCandidate {
			return b, o
		}
		s.Trying = nil
	}
	return Bound{}, outcome{result: notAddress}
}

// tellLeft reports in events of the pod which addresses it has left, and why.
func (a *Try) tellLeft(left []Left, b Bound) {
	for _, l := range left {
		a.h.Events.Eventf(a.Pod, nil, corev1.EventTypeNormal, "AddressLeft", "Bind",
			"%s replaces %s: %s", b.Address.Addr, l.Spec.Address, l.Why)
	}
}
