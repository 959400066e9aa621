// SPDX-License-Identifier: Apache-2.0

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
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
)

// pass looks once and carries out the steps of Plan. It runs new attendances in attending. The next
// pass repeats the steps that failed.
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
				// The next step would wait for the same time, so the pass ends. The next pass begins
				// with the other steps, because the error may concern one lease only.
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
		// This write would slow down an ADD at the API server. A Shed does not give way: an ADD may
		// be waiting for its address.
		k.GiveWay()
		l, err := k.create(ctx, s.Pair, v.candidates[s.Pair.Pool])
		if err != nil || l == nil {
			return err
		}
		k.keep(ctx, l, v, attending)
	}
	return nil
}

// create creates a Warm lease for a pair. It returns nil when the pool has no free address.
func (k *Keeper) create(ctx context.Context, pair Pair, c ipam.Candidate) (*v1alpha1.IPLease, error) {
	parent, exists, err := k.Parent(pair.Parent)
	if err != nil || !exists {
		return nil, err
	}
	l, err := k.Allocator.First(ctx, allocate.Need{
		Family:  ipam.Family{IPv6: c.Subnet.Addr().Is6(), Source: "spec.warm of the pool", Interface: "node " + k.Node, Pools: []ipam.Candidate{c}},
		Parent:  pair.Parent,
		Share:   k.Share(),
		Sighted: func(_ *v1alpha1.IPPool, addr netip.Addr) bool { return k.Sighted(parent, addr) },
		Taken: func(_ *v1alpha1.IPPool, addr netip.Addr) bool {
			_, held := k.Held(parent, addr)
			return held
		},
	})
	if none := (*ipam.NoPoolError)(nil); errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("create a Warm lease of pool %s on parent %s: %w", pair.Pool, pair.Parent, err)
	}
	return l, nil
}

// keep starts an attendance of a lease.
func (k *Keeper) keep(ctx context.Context, l *v1alpha1.IPLease, v view, attending *sync.WaitGroup) {
	ctx, stop := context.WithCancel(ctx)
	i := newItem(l, segment.ParamsOf(v.candidates[l.Spec.Pool].Pool), k.Clock.Now(), stop)
	k.mu.Lock()
	k.items[l.Name] = i
	k.mu.Unlock()
	attending.Go(func() { attendance{k, i}.run(ctx) })
}

// shed releases a lease. The delete is safe, also for a lease of an earlier session: no host used
// the address, and an ADD that binds the lease at the same time changes its resourceVersion.
func (k *Keeper) shed(ctx context.Context, shown *v1alpha1.IPLease, s Step) error {
	l, ok := k.withdraw(s.Lease, shown)
	if !ok {
		return nil
	}
	err := k.Leases.Delete(ctx, l)
	if err != nil && !errors.Is(err, lease.ErrNotMine) {
		k.mu.Lock()
		delete(k.items, s.Lease) // the next pass finds its lease in the cache as Unknown
		k.mu.Unlock()
		return fmt.Errorf("release Warm lease %s of pool %s: %w", s.Lease, s.Pair.Pool, err)
	}
	if err == nil {
		k.freed(l, string(s.Reason))
	}
	return nil
}

// Release releases the Warm leases that other nodes want, unless an ADD of this node has taken them. A lease
// that was written since is not meant.
func (k *Keeper) Release(ctx context.Context, wanted []v1alpha1.LeaseVersion) error {
	var errs []error
	for _, w := range wanted {
		k.mu.Lock()
		i := k.items[w.Name]
		isMeant := i != nil && i.lease.ResourceVersion == w.Version
		k.mu.Unlock()
		if isMeant {
			errs = append(errs, k.shed(ctx, nil, Step{Shed, w.Name, i.pair, Wanted}))
		}
	}
	return errors.Join(errs...)
}

// freed records that a lease was deleted.
func (k *Keeper) freed(l *v1alpha1.IPLease, why string) {
	k.Metrics.WarmLost(l.Spec.Pool, why)
	k.audit(audit.Free, l, "", "Warm: "+why)
	k.Allocator.Freed(l.Spec.Pool, l.Spec.Addr())
}

// withdraw keeps ADDs from taking a lease. It returns false if the lease is taken or has ended.
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

func (k *Keeper) audit(kind audit.Kind, l *v1alpha1.IPLease, mac, reason string) {
	r := audit.Of(l, k.Node, reason)
	r.MAC = mac
	audit.Log(k.Log, kind, r)
}
