package allocate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// maxCollisions is how many creates may meet a lease before the hints of a
// pool count as stale and its leases are listed. A list of 2000 names costs
// the API server about as much as ten creates.
const maxCollisions = 8

// OnDemand creates leases in rotating order, pool by pool, until Try grants
// one, which it returns with its pool. The error is
//   - a *ipam.NoPoolError when all pools are exhausted, which is said only
//     after a list of leases has shown no free address;
//   - for a requested address a *lease.TakenError or a *ipam.RequestedError;
//   - otherwise what Before, Try, the API server or ctx returned.
func (a *Allocator) OnDemand(ctx context.Context, w Wish) (*v1alpha1.IPLease, *v1alpha1.IPPool, error) {
	s := search{Allocator: a, Wish: w, tried: map[netip.Addr]struct{}{}, elsewhere: map[netip.Addr]struct{}{}}
	if w.Family.Requested.IsValid() {
		return s.requested(ctx)
	}
	// All pools by their hints first, and then by what cools down: a pool that
	// looks full costs no list as long as another one can serve.
	for _, look := range []func(context.Context, ipam.Candidate) (*v1alpha1.IPLease, error){
		s.fresh, s.freedHere, s.anything,
	} {
		for _, c := range w.Family.Pools {
			if l, err := look(ctx, c); l != nil || err != nil {
				return l, c.Pool, err
			}
		}
	}
	return nil, nil, &ipam.NoPoolError{
		IPv6: w.Family.IPv6, Interface: w.Family.Interface, Source: w.Family.Source,
		Rejected: append(append([]ipam.Rejection(nil), w.Family.Rejected...), s.exhausted...),
	}
}

// search is one call of OnDemand.
type search struct {
	*Allocator
	Wish
	// tried are addresses that ended in a conflict.
	tried map[netip.Addr]struct{}
	// elsewhere are addresses met since the last list that are leased through
	// pools that overlap the searched one.
	elsewhere map[netip.Addr]struct{}
	exhausted []ipam.Rejection
}

// fresh tries what nothing is known against. It returns nil when there is nothing left.
func (s *search) fresh(ctx context.Context, c ipam.Candidate) (*v1alpha1.IPLease, error) {
	l, err := s.byHints(ctx, c, false)
	if errors.Is(err, errStaleHints) {
		l, _, err = s.byTruth(ctx, c, false)
	}
	return l, err
}

// freedHere tries what cools down since this node freed it as well.
func (s *search) freedHere(ctx context.Context, c ipam.Candidate) (*v1alpha1.IPLease, error) {
	l, err := s.byHints(ctx, c, true)
	if errors.Is(err, errStaleHints) {
		return nil, nil // anything comes next
	}
	return l, err
}

// anything tries whatever has no lease. It returns nil when a list has shown
// nothing free: at that moment the pool was exhausted.
func (s *search) anything(ctx context.Context, c ipam.Candidate) (*v1alpha1.IPLease, error) {
	l, seen, err := s.byTruth(ctx, c, true)
	if l == nil && err == nil {
		s.exhaust(c, seen)
	}
	return l, err
}

// errStaleHints ends a search by hints that met too many leases.
var errStaleHints = errors.New("hints are stale")

// byHints picks by what costs nothing to know. It returns nil when there is
// nothing left, or errStaleHints.
func (s *search) byHints(ctx context.Context, c ipam.Candidate, cooling bool) (*v1alpha1.IPLease, error) {
	view := s.view(c)
	view.Cooling = cooling
	view.Taken = func(addr netip.Addr) bool {
		return s.metOrTried(addr) || s.Taken != nil && s.Taken(c.Pool, addr)
	}
	for collisions := 0; collisions < maxCollisions; {
		addr, ok := s.in(c.Pool.Name).Pick(view)
		if !ok {
			return nil, nil
		}
		l, err := s.attempt(ctx, c, addr, nil)
		if errors.Is(err, lease.ErrTaken) {
			collisions++
			continue
		}
		if l != nil || err != nil {
			return l, err
		}
	}
	return nil, errStaleHints
}

// byTruth picks by what a list of the pool's leases shows, and lists again
// while others are quicker. Without a lease it returns the list that has shown
// nothing to pick.
func (s *search) byTruth(ctx context.Context, c ipam.Candidate, cooling bool) (*v1alpha1.IPLease, *listing, error) {
	pool := s.in(c.Pool.Name)
	for {
		seen, err := pool.list(ctx)
		if err != nil {
			return nil, nil, err
		}
		clear(s.elsewhere)
		view := s.view(c)
		view.Cooling, view.Exact = cooling, true
		view.Taken = func(addr netip.Addr) bool { return s.metOrTried(addr) || seen.has(addr) }
		for {
			addr, ok := pool.Pick(view)
			if !ok {
				break
			}
			l, err := s.attempt(ctx, c, addr, seen)
			if l != nil || err != nil && !errors.Is(err, lease.ErrTaken) {
				return l, nil, err
			}
		}
		if !seen.outrun() {
			return nil, seen, nil
		}
	}
}

// requested tries the one address that was asked for.
func (s *search) requested(ctx context.Context) (*v1alpha1.IPLease, *v1alpha1.IPPool, error) {
	c, addr := s.Family.Pools[0], s.Family.Requested
	l, err := s.attempt(ctx, c, addr, nil)
	if l == nil && err == nil {
		err = &ipam.RequestedError{Addr: addr, Interface: s.Family.Interface, Problem: "somebody else answers for it"}
	}
	return l, c.Pool, err
}

// attempt creates the lease of one address and hands it to Try. It returns
// nil after a conflict. What it learns is noted in seen, which may be nil.
func (s *search) attempt(ctx context.Context, c ipam.Candidate, addr netip.Addr, seen *listing) (*v1alpha1.IPLease, error) {
	l, err := s.create(ctx, c, addr)
	met := (*lease.TakenError)(nil)
	isTaken := errors.As(err, &met)
	// Not after Try, which takes its time: the lease is there for all to meet.
	s.in(c.Pool.Name).Settle(addr, isTaken || err == nil)
	switch {
	case isTaken && met.Lease.Spec.Pool != c.Pool.Name:
		s.elsewhere[addr] = struct{}{}
	case seen != nil && (isTaken || err == nil):
		seen.add(addr)
	}
	if err != nil {
		return nil, err
	}
	outcome, err := s.Try(ctx, c.Pool, l)
	if err != nil {
		return nil, err
	}
	if outcome == Conflict {
		s.tried[addr] = struct{}{}
		return nil, nil
	}
	return l, nil
}

// create journals the intent and creates the lease of one address.
func (s *search) create(ctx context.Context, c ipam.Candidate, addr netip.Addr) (*v1alpha1.IPLease, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("allocate from pool %s: %w", c.Pool.Name, err)
	}
	if s.Before != nil {
		if err := s.Before(ctx, c.Pool, addr); err != nil {
			return nil, err
		}
	}
	return s.leases.Create(ctx, lease.Request{
		Pool: c.Pool.Name, Network: c.Pool.Spec.Network, Addr: addr,
		Parent: s.Parent, Holder: s.Holder, Retention: s.Retention,
	})
}

func (s *search) metOrTried(addr netip.Addr) bool {
	_, met := s.elsewhere[addr]
	_, tried := s.tried[addr]
	return met || tried
}

// view holds what all searches know of a pool.
func (s *search) view(c ipam.Candidate) ipam.View {
	v := ipam.View{Set: c.Set, Subnet: c.Subnet, Share: s.Share, Cooldown: c.Pool.Cooldown()}
	// A bitmap that cannot be read hints at nothing.
	v.InUse, _ = ipam.DecodeBitmap(c.Pool.Status.InUse)
	if s.Sighted != nil {
		v.Sighted = func(addr netip.Addr) bool { return s.Sighted(c.Pool, addr) }
	}
	return v
}

// exhaust notes for people why a pool has nothing to give.
func (s *search) exhaust(c ipam.Candidate, seen *listing) {
	leased, conflicts := seen.count(c.Set), uint64(0)
	for addr := range s.elsewhere {
		if c.Set.Contains(addr) && !seen.has(addr) {
			leased++
		}
	}
	for addr := range s.tried {
		if c.Set.Contains(addr) && !seen.has(addr) {
			conflicts++
		}
	}
	detail := fmt.Sprintf("it is exhausted, of its %d addresses %d have a lease", c.Set.Len(), leased)
	if conflicts > 0 {
		detail += fmt.Sprintf(", %d were answered for by others just now", conflicts)
	}
	// What is neither leased nor tried was left out because it was sighted.
	if rest := c.Set.Len() - leased - conflicts; rest > 0 && rest <= c.Set.Len() {
		detail += fmt.Sprintf(", %d are in use by hosts without one", rest)
	}
	s.exhausted = append(s.exhausted, ipam.Rejection{Pool: c.Pool.Name, Reason: ipam.Exhausted, Detail: detail})
}
