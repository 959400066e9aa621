package warm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// pass looks once and does what Plan says. Attendances that it begins run in
// attending. What has failed is tried again by the next pass.
func (k *Keeper) pass(ctx context.Context, attending *sync.WaitGroup) error {
	v, err := k.look(ctx)
	if err != nil {
		return err
	}
	v.facts.Leases = k.reconcile(v)
	var errs []error
	if err := k.pairs.save(k.Journal, v.facts.Now); err != nil {
		errs = append(errs, err)
	}
	steps := Plan(v.facts)
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(k.unanswered[a], k.unanswered[b]) })
	for _, s := range steps {
		if err := k.do(ctx, s, v, attending); err != nil {
			errs = append(errs, err)
			if lease.IsUnavailable(err) {
				// The next step would wait as long. The next pass begins with others:
				// what looks like that may be about one lease.
				k.unanswered[s]++
				break
			}
		}
	}
	if len(errs) == 0 {
		clear(k.unanswered)
	}
	k.count()
	return errors.Join(errs...)
}

func (k *Keeper) do(ctx context.Context, s Step, v view, attending *sync.WaitGroup) error {
	switch s.Do {
	case Shed:
		return k.shed(ctx, v.leases[s.Lease], s)
	case Attend:
		k.keep(ctx, v.leases[s.Lease], v, attending)
	case Create:
		// An ADD that meets this write at the API server takes longer for it. What is
		// shed does not wait: an ADD may be waiting for it.
		k.GiveWay()
		l, err := k.create(ctx, s.Pair, v.candidates[s.Pair.Pool])
		if err != nil || l == nil {
			return err
		}
		k.keep(ctx, l, v, attending)
	}
	return nil
}

// create makes a Warm lease for a pair. It returns nil when the pool has
// nothing to give: the count that the plan went by is a moment old.
func (k *Keeper) create(ctx context.Context, pair Pair, c ipam.Candidate) (*v1alpha1.IPLease, error) {
	parent, exists, err := k.Parent(pair.Parent)
	if err != nil || !exists {
		return nil, err
	}
	l, _, err := k.Allocator.OnDemand(ctx, allocate.Wish{
		Family:  ipam.Family{IPv6: c.Subnet.Addr().Is6(), Source: "spec.warm of the pool", Interface: "node " + k.Node, Pools: []ipam.Candidate{c}},
		Parent:  pair.Parent,
		Share:   k.Share(),
		Sighted: func(_ *v1alpha1.IPPool, addr netip.Addr) bool { return k.Sighted(parent, addr) },
		Taken: func(_ *v1alpha1.IPPool, addr netip.Addr) bool {
			_, held := k.Held(parent, addr)
			return held
		},
		Try: func(context.Context, *v1alpha1.IPPool, *v1alpha1.IPLease) (allocate.Outcome, error) {
			return allocate.Granted, nil
		},
	})
	if none := (*ipam.NoPoolError)(nil); errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("make a Warm lease of pool %s for %s: %w", pair.Pool, pair.Parent, err)
	}
	return l, nil
}

// keep begins to look after a lease.
func (k *Keeper) keep(ctx context.Context, l *v1alpha1.IPLease, v view, attending *sync.WaitGroup) {
	ctx, stop := context.WithCancel(ctx)
	i := newItem(l, holder.ProbeParams(v.candidates[l.Spec.Pool].Pool), k.Clock.Now(), stop)
	k.mu.Lock()
	k.items[l.Name] = i
	k.mu.Unlock()
	attending.Go(func() { k.attend(ctx, i) })
}

// shed gives a lease up. Nobody has spoken for its address, and who tries to
// bind it meanwhile finds another version of it, so that deleting it is safe
// whichever session has made it.
func (k *Keeper) shed(ctx context.Context, shown *v1alpha1.IPLease, s Step) error {
	l, ok := k.withdraw(s.Lease, shown)
	if !ok {
		return nil
	}
	err := k.Leases.Delete(ctx, l)
	if err != nil && !errors.Is(err, lease.ErrNotMine) {
		k.forget(s.Lease)
		return fmt.Errorf("give up a Warm lease of pool %s: %w", s.Pair.Pool, err)
	}
	if err == nil {
		k.freed(l, string(s.Reason))
	}
	return nil
}

// freed tells of a lease that was deleted.
func (k *Keeper) freed(l *v1alpha1.IPLease, why string) {
	k.Metrics.WarmLost(l.Spec.Pool, why)
	k.audit(audit.Free, l, "", "Warm: "+why)
	if addr, err := netip.ParseAddr(l.Spec.Address); err == nil {
		k.Allocator.Freed(l.Spec.Pool, addr)
	}
}

// withdraw keeps a lease from all ADDs from now on. It is false for one that an
// ADD has taken, or that has ended.
func (k *Keeper) withdraw(name string, shown *v1alpha1.IPLease) (*v1alpha1.IPLease, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.items[name]
	if i == nil {
		if shown == nil {
			return nil, false
		}
		i = newItem(shown, segment.ProbeParams{}, k.Clock.Now(), func() {})
		i.seen, i.done = true, true
		k.items[name] = i
		return shown, true
	}
	if i.taken || i.done {
		return nil, false
	}
	i.done = true
	i.stop()
	return i.lease, true
}

// forget leaves a lease to the next pass, as one that nobody looks after.
func (k *Keeper) forget(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.items, name)
}

func (k *Keeper) audit(kind audit.Kind, l *v1alpha1.IPLease, mac, reason string) {
	r := audit.Record{Pool: l.Spec.Pool, Node: k.Node, MAC: mac, Reason: reason}
	// Both come from the API server; what cannot be parsed stays empty.
	r.Address, _ = netip.ParseAddr(l.Spec.Address)
	r.Token, _ = lease.Token(l)
	audit.Log(k.Log, kind, r)
}
