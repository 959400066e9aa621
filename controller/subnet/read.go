// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/poolset"
)

// facts reads the cache, and the scale of the applications that have no template.
func (r *Reconciler) facts(ctx context.Context) (Facts, error) {
	var f Facts
	if err := f.readRecords(ctx, r.Client); err != nil {
		return Facts{}, err
	}
	r.memory.see(f, r.Clock.Now())
	if len(f.Subnets) == 0 && !slices.ContainsFunc(f.Pools, isMade) {
		return f, nil
	}
	reservations, err := poolset.Reservations(ctx, r.Client)
	if err != nil {
		return Facts{}, err
	}
	f.Reserved = poolset.ReservedSet(reservations)
	if f.Leased, err = r.leased(ctx, f); err != nil {
		return Facts{}, err
	}
	f.Settled, f.Expired = r.memory.settled(r.Clock.Now(), r.Settle)
	r.answers.begin(r.Clock.Now())
	templated, uncounted, err := r.applications(ctx, &f)
	if err != nil {
		return Facts{}, err
	}
	others, unread, err := r.others(ctx)
	if err != nil {
		return Facts{}, err
	}
	f.Applications = slices.Concat(templated, others)
	if f.Unsure, err = r.unsure(ctx, f.Pools, f.Applications, unread); err != nil {
		return Facts{}, err
	}
	maps.Copy(f.Unsure, uncounted)
	return f, nil
}

// readRecords reads the IPSubnets and then the pools.
func (f *Facts) readRecords(ctx context.Context, reader client.Reader) error {
	var subnets v1alpha1.IPSubnetList
	if err := reader.List(ctx, &subnets); err != nil {
		return fmt.Errorf("list IPSubnets: %w", err)
	}
	var pools v1alpha1.IPPoolList
	if err := reader.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	f.Subnets, f.Pools = subnets.Items, pools.Items
	return nil
}

// applications returns the applications with a template that ask for addresses of IPSubnets, and reads
// the namespaces. uncounted are those whose pods nobody has counted yet.
func (r *Reconciler) applications(ctx context.Context, f *Facts) (all []Application, uncounted map[Identity]bool, err error) {
	candidates, uncounted, err := r.templated(ctx)
	if err != nil {
		return nil, nil, err
	}
	var ofPools map[string]bool
	if f.Namespaces, ofPools, err = r.namespaces(ctx); err != nil {
		return nil, nil, err
	}
	v4, v6 := demand.Defaults(r.V4, r.V6, f.Subnets)
	return demands(candidates, v4, v6, *f, ofPools), uncounted, nil
}

// leased returns the addresses with a lease, by the pool of the lease: of the pools that the controller
// made, and of those that may have an address of an IPSubnet.
func (r *Reconciler) leased(ctx context.Context, f Facts) (map[string]poolset.Set, error) {
	all := map[string]poolset.Set{}
	for i := range f.Pools {
		pool := &f.Pools[i]
		if !isMade(*pool) && !mayMeet(pool, f.Subnets) {
			continue
		}
		var leases v1alpha1.IPLeaseList
		err := r.Client.List(ctx, &leases, client.UnsafeDisableDeepCopy, client.MatchingFields{cache.LeasesByPool: pool.Name})
		if err != nil {
			return nil, fmt.Errorf("list leases of pool %s: %w", pool.Name, err)
		}
		addresses := make([]string, len(leases.Items))
		for n := range leases.Items {
			addresses[n] = leases.Items[n].Spec.Addr().String()
		}
		if all[pool.Name], err = poolset.Parse(addresses); err != nil {
			return nil, fmt.Errorf("read the leases of pool %s: %w", pool.Name, err)
		}
	}
	return all, nil
}

// mayMeet reports whether the subnet of a pool overlaps that of an IPSubnet.
func mayMeet(pool *v1alpha1.IPPool, subnets []v1alpha1.IPSubnet) bool {
	theirs, err := poolset.Subnet(pool)
	if err != nil {
		return false
	}
	for i := range subnets {
		ours, err := poolset.Subnet(subnets[i].AsPool())
		if err == nil && subnets[i].Spec.Network == pool.Spec.Network && ours.Overlaps(theirs) {
			return true
		}
	}
	return false
}
