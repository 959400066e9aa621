// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"time"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// maxCollisions is the number of creates that may find a lease before the hints of a pool count as
// stale. The list of leases that follows costs the API server about as much as ten creates.
const maxCollisions = 8

// maxCollisionTime bounds the time of these creates: with a slow API server, eight of them would use up
// the time of an ADD.
const maxCollisionTime = 2 * time.Second

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
func (w *walk) run(ctx context.Context) error {
	if w.Family.Requested.IsValid() {
		return w.requested(ctx)
	}
	if len(w.Only) > 0 {
		return w.only(ctx)
	}
	// First search all pools by their hints, then all pools with the addresses that cool down. So a
	// pool that looks full costs no list while another pool can serve.
	for _, look := range []func(context.Context, ipam.Candidate) error{w.fresh, w.freedHere, w.anything} {
		for _, c := range w.Family.Pools {
			if err := look(ctx, c); err != nil {
				return err
			}
		}
	}
	return w.none()
}

// none returns the error of a search that has found the pools exhausted.
func (w *walk) none() error {
	return &ipam.NoPoolError{
		IPv6: w.Family.IPv6, Interface: w.Family.Interface, Source: w.Family.Source,
		Rejected: append(append([]ipam.Rejection(nil), w.Family.Rejected...), w.exhausted...),
	}
}

// fresh offers the addresses that no hint rules out.
func (w *walk) fresh(ctx context.Context, c ipam.Candidate) error {
	err := w.byHints(ctx, c, false)
	if errors.Is(err, errStaleHints) {
		_, err = w.byTruth(ctx, c, false)
	}
	return err
}

// freedHere also offers the addresses that this node has freed and that still cool down.
func (w *walk) freedHere(ctx context.Context, c ipam.Candidate) error {
	err := w.byHints(ctx, c, true)
	if errors.Is(err, errStaleHints) {
		return nil // the step anything comes next
	}
	return err
}

// anything offers every address without a lease. When it returns nil, a list has
// shown no free address: at that moment the pool was exhausted.
func (w *walk) anything(ctx context.Context, c ipam.Candidate) error {
	seen, err := w.byTruth(ctx, c, true)
	if err == nil {
		w.exhaust(c, seen)
	}
	return err
}

// errStaleHints ends a search by hints that has found too many leases.
var errStaleHints = errors.New("hints are stale")

// byHints offers addresses by the hints. It returns nil when there are no more, or errStaleHints.
func (w *walk) byHints(ctx context.Context, c ipam.Candidate, cooling bool) error {
	view := w.view(c)
	view.Cooling = cooling
	view.Taken = func(addr netip.Addr) bool {
		return w.metOrTried(addr) || w.Taken != nil && w.Taken(c.Pool, addr)
	}
	collided := time.Duration(0)
	for collisions := 0; collisions < maxCollisions && collided < maxCollisionTime; {
		addr, ok := w.in(c.Pool.Name).Pick(view)
		if !ok {
			return nil
		}
		began := w.clock.Now()
		o, err := w.offer(ctx, c.Pool, addr, nil)
		if err != nil {
			return err
		}
		if errors.Is(o.err, lease.ErrTaken) {
			collisions++
			collided += w.clock.Since(began)
		}
	}
	return errStaleHints
}

// byTruth offers addresses by a list of the pool's leases, and lists again while
// other nodes are faster. It returns the list that has shown no free address.
func (w *walk) byTruth(ctx context.Context, c ipam.Candidate, cooling bool) (*listing, error) {
	pool := w.in(c.Pool.Name)
	for {
		seen, err := w.lists.Get(ctx, c.Pool.Name)
		if err != nil {
			return nil, err
		}
		clear(w.elsewhere)
		view := w.view(c)
		view.Cooling, view.Exact = cooling, true
		view.Taken = func(addr netip.Addr) bool { return w.metOrTried(addr) || seen.has(addr) }
		for {
			addr, ok := pool.Pick(view)
			if !ok {
				break
			}
			if _, err := w.offer(ctx, c.Pool, addr, seen); err != nil {
				return nil, err
			}
		}
		if !seen.outrun() {
			return seen, nil
		}
	}
}

// requested offers the requested address.
func (w *walk) requested(ctx context.Context) error {
	addr := w.Family.Requested
	c, err := w.offer(ctx, w.Family.Pools[0].Pool, addr, nil)
	switch {
	case err != nil:
		return err
	case c.err == nil:
		return w.Family.Refuse("another host, or this node itself, answers for it")
	}
	taken, ok := errors.AsType[*lease.TakenError](c.err)
	if !ok {
		return c.err
	}
	refused := w.Family.Refuse("it is taken: " + taken.Holder())
	if refused.Err = c.err; taken.Lease.Spec.State == v1alpha1.StateWarm {
		refused.KeptReady = taken.Lease.Spec.NodeName
		refused.Problem = fmt.Sprintf("node %s keeps it ready (Warm), and is asked to release it", refused.KeptReady)
	}
	if refused.Reserved && taken.Lease.Spec.State == v1alpha1.StateBound {
		refused.Problem += ", and leaves it at its next start: delete that pod too"
	}
	return refused
}

// only offers the addresses that alone are candidates.
func (w *walk) only(ctx context.Context) error {
	pool := w.Family.Pools[0].Pool
	var names []string
	for _, addr := range w.Only {
		if _, err := w.offer(ctx, pool, addr, nil); err != nil {
			return err
		}
		names = append(names, addr.String())
	}
	w.exhausted = append(w.exhausted, ipam.Rejection{Pool: pool.Name, Reason: ipam.Exhausted,
		Detail: "it is exhausted, others have " + strings.Join(names, ", ")})
	return w.none()
}

// offer yields an address. It returns errStopped if the caller wants no other one.
func (w *walk) offer(ctx context.Context, pool *v1alpha1.IPPool, addr netip.Addr, seen *listing) (*Candidate, error) {
	if err := ctx.Err(); err != nil {
		w.in(pool.Name).Settle(addr, false)
		return nil, fmt.Errorf("allocate from pool %s: %w", pool.Name, err)
	}
	c := &Candidate{Pool: pool, Addr: addr, walk: w, seen: seen}
	more := w.yield(c, nil)
	if !c.called {
		w.in(pool.Name).Settle(addr, false)
	}
	if !more {
		return nil, errStopped
	}
	if c.err == nil {
		w.tried[addr] = struct{}{}
	}
	return c, nil
}

func (w *walk) metOrTried(addr netip.Addr) bool {
	_, met := w.elsewhere[addr]
	_, tried := w.tried[addr]
	return met || tried
}

// view returns the facts about a pool that hints and lists share.
func (w *walk) view(c ipam.Candidate) ipam.View {
	v := ipam.View{Set: c.Set, Subnet: c.Subnet, Share: w.Share, Cooldown: c.Pool.Cooldown()}
	// An unreadable bitmap gives no hint.
	v.InUse, _ = poolset.DecodeBitmap(c.Pool.Status.InUse)
	if w.Sighted != nil {
		v.Sighted = func(addr netip.Addr) bool { return w.Sighted(c.Pool, addr) }
	}
	return v
}

// exhaust records the reason for which a pool has no free address.
func (w *walk) exhaust(c ipam.Candidate, seen *listing) {
	leased, conflicts := seen.count(c.Set), uint64(0)
	for addr := range w.elsewhere {
		if c.Set.Contains(addr) && !seen.has(addr) {
			leased++
		}
	}
	for addr := range w.tried {
		if c.Set.Contains(addr) && !seen.has(addr) {
			conflicts++
		}
	}
	detail := fmt.Sprintf("it is exhausted, %d of its %d addresses have a lease", leased, c.Set.Len())
	if w.Family.Wish != nil {
		detail = fmt.Sprintf("it is exhausted for this pod, %d of the %d addresses that %s names have a lease", leased, c.Set.Len(), w.Family.Wish.By)
	}
	if conflicts > 0 {
		detail += fmt.Sprintf(", %d are used by other hosts", conflicts)
	}
	// Addresses neither leased nor tried were skipped because they were sighted.
	if rest := c.Set.Len() - leased - conflicts; rest > 0 && rest <= c.Set.Len() {
		detail += fmt.Sprintf(", %d are in use by hosts without a lease", rest)
	}
	w.exhausted = append(w.exhausted, ipam.Rejection{Pool: c.Pool.Name, Reason: ipam.Exhausted, Detail: detail})
}
