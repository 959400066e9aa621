// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Givers are the pools that may hand out the address of a lease.
type Givers struct {
	// Known is false if the pools and reservations were not read.
	Known bool
	Pools []string
}

// supply is all pools and reservations of the cluster.
type supply struct {
	pools    []v1alpha1.IPPool
	reserved poolset.Set
}

// decideUnwanted is for Quarantined leases of addresses that no pool hands out any more. Such a lease
// ends if it never had a holder. The host that uses the address may use it for years, and the deletion
// of the pool waits for the lease. If a pool gets the address again, an ADD probes it (R4).
func decideUnwanted(f Facts) (Action, bool) {
	if !f.Givers.Known || len(f.Givers.Pools) > 0 || !hadNoHolder(&f.Lease.Spec) {
		return Action{}, false
	}
	return Action{Kind: EndQuarantine, Why: fmt.Sprintf("no pool hands %s out any more", f.Lease.Spec.Address)}, true
}

// hadNoHolder reports whether no pod has ever had the address under this Quarantined lease. It is true
// for a conflict that an ADD has found, and for a lease that was Warm. It is false if spec.previous
// names a pod or a MAC: this predecessor must be proven safe (R1), also after its pool was made again.
func hadNoHolder(spec *v1alpha1.IPLeaseSpec) bool {
	p := spec.Previous
	return spec.State == v1alpha1.StateQuarantined && spec.Holder == nil && (p == nil || p.PodUID == "" && p.MAC == "")
}

func readSupply(ctx context.Context, reader client.Reader) (supply, error) {
	var pools v1alpha1.IPPoolList
	if err := reader.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return supply{}, fmt.Errorf("list pools: %w", err)
	}
	var reservations v1alpha1.ReservedIPList
	if err := reader.List(ctx, &reservations, client.UnsafeDisableDeepCopy); err != nil {
		return supply{}, fmt.Errorf("list reservations: %w", err)
	}
	return supply{pools.Items, poolset.ReservedSet(reservations.Items)}, nil
}

// givers returns the pools that may hand out the address of a lease.
func (s supply) givers(lease *v1alpha1.IPLease) Givers {
	network, addr, err := v1alpha1.ParseLeaseName(lease.Name)
	if err != nil {
		return Givers{} // the CRD refuses such a name
	}
	return Givers{Known: true, Pools: poolset.Givers(network, addr, s.pools, s.reserved)}
}
