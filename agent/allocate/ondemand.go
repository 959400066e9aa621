package allocate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// maxCollisions is how many creates may meet a lease before the hints of a
	// pool count as stale and its leases are listed. A list of 2000 names costs
	// the API server about as much as ten creates.
	maxCollisions = 8
	// defaultCooldown is of pools that set none.
	defaultCooldown = 30 * time.Second
)

// OnDemand creates leases in rotating order, pool by pool, until Try grants
// one, which it returns with its pool. The error is
//   - a *ipam.NoPoolError when all pools are exhausted, which is said only
//     after a list of leases has shown no free address;
//   - for a requested address a *lease.TakenError or a *ipam.RequestedError;
//   - otherwise what Before, Try, the API server or ctx returned.
func (a *Allocator) OnDemand(ctx context.Context, w Wish) (*v1alpha1.IPLease, *v1alpha1.IPPool, error) {
	s := search{Allocator: a, Wish: w, tried: map[netip.Addr]struct{}{}}
	if w.Family.Requested.IsValid() {
		return s.requested(ctx)
	}
	// All pools by their hints first, so that a pool that looks full costs no
	// list as long as the next one can serve.
	looksFull := make([]bool, len(w.Family.Pools))
	for i, c := range w.Family.Pools {
		l, err := s.byHints(ctx, c)
		if errors.Is(err, errStaleHints) {
			l, err = s.byTruth(ctx, c)
		} else {
			looksFull[i] = true
		}
		if l != nil || err != nil {
			return l, c.Pool, err
		}
	}
	for i, c := range w.Family.Pools {
		if !looksFull[i] {
			continue
		}
		if l, err := s.byTruth(ctx, c); l != nil || err != nil {
			return l, c.Pool, err
		}
	}
	return nil, nil, &ipam.NoPoolError{
		IPv6: w.Family.IPv6, Interface: w.Family.Interface, Source: w.Family.Source,
		Rejected: append(append([]ipam.Rejection(nil), w.Family.Rejected...), s.exhausted...),
	}
}

// errStaleHints ends a search by hints that met too many leases.
var errStaleHints = errors.New("hints are stale")

// search is one call of OnDemand.
type search struct {
	*Allocator
	Wish
	// tried are addresses that ended in a conflict.
	tried     map[netip.Addr]struct{}
	exhausted []ipam.Rejection
}

// byHints tries what nothing is known against. It returns nil when there is
// nothing left, or errStaleHints.
func (s *search) byHints(ctx context.Context, c ipam.Candidate) (*v1alpha1.IPLease, error) {
	view := s.view(c)
	// A bitmap that cannot be read hints at nothing.
	view.InUse, _ = ipam.DecodeBitmap(c.Pool.Status.InUse)
	view.Taken = func(addr netip.Addr) bool {
		return s.has(addr) || s.Taken != nil && s.Taken(c.Pool, addr)
	}
	for collisions := 0; collisions < maxCollisions; {
		addr, ok := s.rotation(c.Pool.Name).Pick(view)
		if !ok {
			return nil, nil
		}
		l, err := s.attempt(ctx, c, addr)
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

// byTruth tries what a list of the pool's leases shows to be free, and lists
// again while others are quicker. It returns nil when one list has shown
// nothing free: at that moment the pool was exhausted.
func (s *search) byTruth(ctx context.Context, c ipam.Candidate) (*v1alpha1.IPLease, error) {
	// elsewhere are addresses leased through pools that overlap this one.
	elsewhere := map[netip.Addr]struct{}{}
	for {
		taken, err := s.leases.TakenIn(ctx, c.Pool.Name)
		if err != nil {
			return nil, err
		}
		view := s.view(c)
		view.Exact = true
		view.Taken = func(addr netip.Addr) bool {
			_, inPool := taken[addr]
			_, inOther := elsewhere[addr]
			return inPool || inOther || s.has(addr)
		}
		outrun := false
		for {
			addr, ok := s.rotation(c.Pool.Name).Pick(view)
			if !ok {
				break
			}
			l, err := s.attempt(ctx, c, addr)
			if met := (*lease.TakenError)(nil); errors.As(err, &met) {
				if met.Lease.Spec.Pool == c.Pool.Name {
					taken[addr], outrun = struct{}{}, true
				} else {
					elsewhere[addr] = struct{}{}
				}
				continue
			}
			if l != nil || err != nil {
				return l, err
			}
		}
		if !outrun {
			s.exhaust(c, taken, elsewhere)
			return nil, nil
		}
	}
}

// requested tries the one address that was asked for.
func (s *search) requested(ctx context.Context) (*v1alpha1.IPLease, *v1alpha1.IPPool, error) {
	c, addr := s.Family.Pools[0], s.Family.Requested
	l, err := s.attempt(ctx, c, addr)
	if l == nil && err == nil {
		err = &ipam.RequestedError{Addr: addr, Interface: s.Family.Interface, Problem: "somebody else answers for it"}
	}
	return l, c.Pool, err
}

// attempt creates the lease of one address and hands it to Try. It returns
// nil after a conflict.
func (s *search) attempt(ctx context.Context, c ipam.Candidate, addr netip.Addr) (*v1alpha1.IPLease, error) {
	leased := false
	defer func() { s.rotation(c.Pool.Name).Settle(addr, leased) }()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("allocate from pool %s: %w", c.Pool.Name, err)
	}
	if s.Before != nil {
		if err := s.Before(ctx, c.Pool, addr); err != nil {
			return nil, err
		}
	}
	l, err := s.leases.Create(ctx, lease.Request{
		Pool: c.Pool.Name, Network: c.Pool.Spec.Network, Addr: addr,
		Parent: s.Parent, Holder: s.Holder, Retention: s.Retention,
	})
	if err != nil {
		leased = errors.Is(err, lease.ErrTaken)
		return nil, err
	}
	outcome, err := s.Try(ctx, c.Pool, l)
	if err != nil {
		return nil, err
	}
	leased = true
	if outcome == Conflict {
		s.tried[addr] = struct{}{}
		return nil, nil
	}
	return l, nil
}

func (s *search) has(addr netip.Addr) bool {
	_, tried := s.tried[addr]
	return tried
}

// view holds what both searches know of a pool.
func (s *search) view(c ipam.Candidate) ipam.View {
	v := ipam.View{Set: c.Set, Subnet: c.Subnet, Share: s.Share, Cooldown: defaultCooldown}
	if r := c.Pool.Spec.Reclaim; r != nil && r.Cooldown != nil {
		v.Cooldown = r.Cooldown.Duration
	}
	if s.Sighted != nil {
		v.Sighted = func(addr netip.Addr) bool { return s.Sighted(c.Pool, addr) }
	}
	return v
}

// exhaust notes for people why a pool has nothing to give.
func (s *search) exhaust(c ipam.Candidate, taken, elsewhere map[netip.Addr]struct{}) {
	leased, conflicts := 0, 0
	for addr := range taken {
		if c.Set.Contains(addr) {
			leased++
		}
	}
	for addr := range s.tried {
		if _, counted := taken[addr]; c.Set.Contains(addr) && !counted {
			conflicts++
		}
	}
	leased += len(elsewhere)
	detail := fmt.Sprintf("it is exhausted, of its %d addresses %d have a lease", c.Set.Len(), leased)
	if conflicts > 0 {
		detail += fmt.Sprintf(", %d were answered for by others just now", conflicts)
	}
	// What is neither leased nor tried was left out because it was sighted.
	if rest := c.Set.Len() - uint64(leased) - uint64(conflicts); rest > 0 && rest <= c.Set.Len() {
		detail += fmt.Sprintf(", %d are in use by hosts without one", rest)
	}
	s.exhausted = append(s.exhausted, ipam.Rejection{Pool: c.Pool.Name, Reason: ipam.Exhausted, Detail: detail})
}
