// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// maxCollisions is the number of creates that may find a lease before the hints of a pool count as
// stale. The list of leases that follows costs the API server about as much as ten creates.
const maxCollisions = 8

// First creates the lease of the first candidate that has none.
func (a *Allocator) First(ctx context.Context, w Need) (*v1alpha1.IPLease, error) {
	for c, err := range a.Candidates(ctx, w) {
		if err != nil {
			return nil, err
		}
		l, err := c.Lease(ctx, w.Holder)
		if !errors.Is(err, lease.ErrTaken) {
			return l, err
		}
	}
	return nil, errStopped // the last candidate comes with an error
}

// Candidates yields addresses in rotating order, pool by pool. The caller
// creates the lease of a candidate with Lease, and goes on to the next candidate
// if the address is taken or another host uses it. An error ends the search:
//   - a *ipam.NoPoolError if all pools are exhausted, which is reported only
//     after a list of leases has shown no free address;
//   - for a requested address a *lease.TakenError or a *ipam.RequestedError;
//   - otherwise the error of the API server or of ctx.
func (a *Allocator) Candidates(ctx context.Context, w Need) iter.Seq2[*Candidate, error] {
	return func(yield func(*Candidate, error) bool) {
		s := walk{
			Allocator: a, Need: w, yield: yield,
			tried: map[netip.Addr]struct{}{}, elsewhere: map[netip.Addr]struct{}{},
		}
		if err := s.run(ctx); !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

// Candidate is an address that has no lease as far as this node knows.
type Candidate struct {
	Pool *v1alpha1.IPPool
	Addr netip.Addr

	walk *walk
	// seen is the list by which the candidate was chosen. It is nil if hints chose the candidate.
	seen *listing
	// called: the caller has called Lease, which returned err.
	called bool
	err    error
}

// Lease creates the lease of the candidate. If there is one, the error is a *lease.TakenError.
func (c *Candidate) Lease(ctx context.Context, holder v1alpha1.Holder) (*v1alpha1.IPLease, error) {
	s := c.walk
	r := lease.Request{Pool: c.Pool.Name, Network: c.Pool.Spec.Network, Addr: c.Addr, Parent: s.Parent, Holder: holder}
	if s.Retention != nil {
		r.Retention = s.Retention(c.Pool)
	}
	l, err := s.leases.Create(ctx, r)
	c.called, c.err = true, err
	// Settle at once: the probes that follow take time, and other calls already find the lease.
	met := (*lease.TakenError)(nil)
	taken := errors.As(err, &met)
	s.in(c.Pool.Name).Settle(c.Addr, taken || err == nil)
	switch {
	case taken && met.Lease.Spec.Pool != c.Pool.Name:
		s.elsewhere[c.Addr] = struct{}{}
	case c.seen != nil && (taken || err == nil):
		c.seen.add(c.Addr)
	}
	return l, err
}

// errStopped ends a search whose caller takes no more candidates.
var errStopped = errors.New("the caller takes no more candidates")

// walk is one search: a range over Candidates.
type walk struct {
	*Allocator
	Need
	yield func(*Candidate, error) bool
	// tried are the addresses that this search has leased, and that another host turned out to use.
	tried map[netip.Addr]struct{}
	// elsewhere are the addresses found to be leased since the last list, in overlapping pools.
	elsewhere map[netip.Addr]struct{}
	exhausted []ipam.Rejection
}

// run offers candidates, and returns the reason for which there are no more.
func (s *walk) run(ctx context.Context) error {
	if s.Family.Requested.IsValid() {
		return s.requested(ctx)
	}
	if len(s.Only) > 0 {
		return s.only(ctx)
	}
	// First search all pools by their hints, then all pools with the addresses that cool down. So a
	// pool that looks full costs no list while another pool can serve.
	for _, look := range []func(context.Context, ipam.Candidate) error{s.fresh, s.freedHere, s.anything} {
		for _, c := range s.Family.Pools {
			if err := look(ctx, c); err != nil {
				return err
			}
		}
	}
	return s.none()
}

// none returns the error of a search that has found the pools exhausted.
func (s *walk) none() error {
	return &ipam.NoPoolError{
		IPv6: s.Family.IPv6, Interface: s.Family.Interface, Source: s.Family.Source,
		Rejected: append(append([]ipam.Rejection(nil), s.Family.Rejected...), s.exhausted...),
	}
}

// fresh offers the addresses that no hint rules out.
func (s *walk) fresh(ctx context.Context, c ipam.Candidate) error {
	err := s.byHints(ctx, c, false)
	if errors.Is(err, errStaleHints) {
		_, err = s.byTruth(ctx, c, false)
	}
	return err
}

// freedHere also offers the addresses that this node has freed and that still cool down.
func (s *walk) freedHere(ctx context.Context, c ipam.Candidate) error {
	err := s.byHints(ctx, c, true)
	if errors.Is(err, errStaleHints) {
		return nil // the step anything comes next
	}
	return err
}

// anything offers every address without a lease. When it returns nil, a list has
// shown no free address: at that moment the pool was exhausted.
func (s *walk) anything(ctx context.Context, c ipam.Candidate) error {
	seen, err := s.byTruth(ctx, c, true)
	if err == nil {
		s.exhaust(c, seen)
	}
	return err
}

// errStaleHints ends a search by hints that has found too many leases.
var errStaleHints = errors.New("hints are stale")

// byHints offers addresses by the hints. It returns nil when there are no more, or errStaleHints.
func (s *walk) byHints(ctx context.Context, c ipam.Candidate, cooling bool) error {
	view := s.view(c)
	view.Cooling = cooling
	view.Taken = func(addr netip.Addr) bool {
		return s.metOrTried(addr) || s.Taken != nil && s.Taken(c.Pool, addr)
	}
	for collisions := 0; collisions < maxCollisions; {
		addr, ok := s.in(c.Pool.Name).Pick(view)
		if !ok {
			return nil
		}
		o, err := s.offer(ctx, c.Pool, addr, nil)
		if err != nil {
			return err
		}
		if errors.Is(o.err, lease.ErrTaken) {
			collisions++
		}
	}
	return errStaleHints
}

// byTruth offers addresses by a list of the pool's leases, and lists again while
// other nodes are faster. It returns the list that has shown no free address.
func (s *walk) byTruth(ctx context.Context, c ipam.Candidate, cooling bool) (*listing, error) {
	pool := s.in(c.Pool.Name)
	for {
		seen, err := s.lists.Get(ctx, c.Pool.Name)
		if err != nil {
			return nil, err
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
			if _, err := s.offer(ctx, c.Pool, addr, seen); err != nil {
				return nil, err
			}
		}
		if !seen.outrun() {
			return seen, nil
		}
	}
}

// requested offers the requested address.
func (s *walk) requested(ctx context.Context) error {
	addr := s.Family.Requested
	c, err := s.offer(ctx, s.Family.Pools[0].Pool, addr, nil)
	switch {
	case err != nil:
		return err
	case c.err != nil:
		return c.err
	}
	return &ipam.RequestedError{Addr: addr, Interface: s.Family.Interface, Problem: "another host, or this node itself, answers for it"}
}

// only offers the addresses that alone are candidates.
func (s *walk) only(ctx context.Context) error {
	pool := s.Family.Pools[0].Pool
	var names []string
	for _, addr := range s.Only {
		if _, err := s.offer(ctx, pool, addr, nil); err != nil {
			return err
		}
		names = append(names, addr.String())
	}
	s.exhausted = append(s.exhausted, ipam.Rejection{Pool: pool.Name, Reason: ipam.Exhausted,
		Detail: "it is exhausted, others have " + strings.Join(names, ", ")})
	return s.none()
}

// offer yields an address. It returns errStopped if the caller wants no other one.
func (s *walk) offer(ctx context.Context, pool *v1alpha1.IPPool, addr netip.Addr, seen *listing) (*Candidate, error) {
	if err := ctx.Err(); err != nil {
		s.in(pool.Name).Settle(addr, false)
		return nil, fmt.Errorf("allocate from pool %s: %w", pool.Name, err)
	}
	c := &Candidate{Pool: pool, Addr: addr, walk: s, seen: seen}
	more := s.yield(c, nil)
	if !c.called {
		s.in(pool.Name).Settle(addr, false)
	}
	if !more {
		return nil, errStopped
	}
	if c.err == nil {
		s.tried[addr] = struct{}{}
	}
	return c, nil
}

func (s *walk) metOrTried(addr netip.Addr) bool {
	_, met := s.elsewhere[addr]
	_, tried := s.tried[addr]
	return met || tried
}

// view returns the facts about a pool that hints and lists share.
func (s *walk) view(c ipam.Candidate) ipam.View {
	v := ipam.View{Set: c.Set, Subnet: c.Subnet, Share: s.Share, Cooldown: c.Pool.Cooldown()}
	// An unreadable bitmap gives no hint.
	v.InUse, _ = poolset.DecodeBitmap(c.Pool.Status.InUse)
	if s.Sighted != nil {
		v.Sighted = func(addr netip.Addr) bool { return s.Sighted(c.Pool, addr) }
	}
	return v
}

// exhaust records the reason for which a pool has no free address.
func (s *walk) exhaust(c ipam.Candidate, seen *listing) {
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
	detail := fmt.Sprintf("it is exhausted, %d of its %d addresses have a lease", leased, c.Set.Len())
	if conflicts > 0 {
		detail += fmt.Sprintf(", %d are used by other hosts", conflicts)
	}
	// Addresses neither leased nor tried were skipped because they were sighted.
	if rest := c.Set.Len() - leased - conflicts; rest > 0 && rest <= c.Set.Len() {
		detail += fmt.Sprintf(", %d are in use by hosts without a lease", rest)
	}
	s.exhausted = append(s.exhausted, ipam.Rejection{Pool: c.Pool.Name, Reason: ipam.Exhausted, Detail: detail})
}
