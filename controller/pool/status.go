// SPDX-License-Identifier: Apache-2.0

// Package pool publishes the status of each IPPool: counts, the bitmap of addresses in use and
// conditions. Its finalizer keeps a pool until the last lease is gone.
package pool

import (
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Facts is the input from which the status of a pool is computed.
type Facts struct {
	Pool *v1alpha1.IPPool
	// Leases are the leases of the pool.
	Leases []v1alpha1.IPLease
	// Cooling are the addresses that were freed a moment ago.
	Cooling []netip.Addr
	// Others are the other pools of the cluster.
	Others []v1alpha1.IPPool
	// Reserved are the addresses that no pool hands out.
	Reserved poolset.Set
	// Kept are those of them that are kept for somebody, and IsKept reports whether a lease is the one's.
	Kept   poolset.Set
	IsKept func(*v1alpha1.IPLease) bool
	// Agents is the number of agents. Shares is the number of parts into which they divide a pool.
	Agents, Shares int
	// Served is the number of nodes on which an agent may keep Warm leases of the pool.
	Served int
	Now    metav1.Time
}

// NewReport computes the new status of a pool, and the figures for its metrics. A condition whose status
// stays keeps its time of transition.
func NewReport(f Facts) metrics.Pool {
	offered, problem := poolset.Validate(f.Pool)
	shares := poolset.Shares(f.Pool, offered, f.Others)
	withheld := poolset.Record(f.Pool, shares)
	own := offered.Minus(poolset.Withheld(withheld))
	set := own.Minus(f.Reserved)
	t := tally(f, set, problem == nil)
	t.hostsOfMany = hostsOfMany(f.Pool, f.Leases)

	r := metrics.Pool{Subnet: f.Pool.Spec.IPSubnet, Quarantined: t.quarantined, Outside: int64(len(t.outside)), HostsOfMany: len(t.hostsOfMany)}
	r.Status = v1alpha1.IPPoolStatus{
		ObservedGeneration: f.Pool.Generation,
		Total:              set.Count(),
		Used:               int64(len(f.Leases)),
		Bound:              t.states[v1alpha1.StateBound],
		Warm:               t.states[v1alpha1.StateWarm],
		Quarantined:        t.states[v1alpha1.StateQuarantined],
		Retained:           t.states[v1alpha1.StateRetained],
		// The lengths of large sets are capped, so Minus is correct and the difference of two lengths
		// is not.
		Reserved: own.Minus(set).Count(),
		Withheld: withheld,
		InUse:    inUse(f),
		Agents:   int64(f.Agents),
		Served:   int64(f.Served),
		Shares:   int64(f.Shares),
	}
	r.Free = max(0, r.Status.Total-t.taken)
	r.Status.Free = max(0, r.Free-t.warm)
	r.Status.Scarce = isScarce(f, r.Free, r.Status.Total)
	r.Status.Stock = stock(f, r.Free, r.Status.Total)
	r.Status.Conditions = conditions(f, t, r, poolset.Closed(f.Pool, problem, offered, own, set.Plus(own.And(f.Kept))), problem, overlapOf(f.Pool, set, shares, f))
	return r
}

// counts are the numbers of leases of a pool.
type counts struct {
	states      map[v1alpha1.LeaseState]int64
	quarantined map[v1alpha1.LeaseReason]int64
	// unguarded is the number of Bound leases whose holder has no guard. notSilent are the Quarantined leases
	// that wait for the end of such a holder.
	unguarded int64
	notSilent []*v1alpha1.IPLease
	// ahead is the number of Bound leases whose holder cannot be fenced because the store went back.
	ahead int64
	// taken is the number of addresses of the pool with a lease that is not Warm, so that no ADD can
	// get them. warm is the number with a Warm lease, which its agent releases if the pool is scarce.
	taken, warm int64
	// outside has the leases with an address that the pool does not hand out.
	outside []*v1alpha1.IPLease
	// hostsOfMany are the MACs of the foreign hosts that answer for many addresses.
	hostsOfMany []string
}

// tally counts the leases. The set of an invalid pool is empty, so tally then does not compare it with
// the leases.
func tally(f Facts, set poolset.Set, valid bool) counts {
	leases := f.Leases
	t := counts{states: map[v1alpha1.LeaseState]int64{}, quarantined: map[v1alpha1.LeaseReason]int64{}}
	for i := range leases {
		spec := &leases[i].Spec
		t.states[spec.State]++
		if spec.State == v1alpha1.StateBound && spec.Reason == v1alpha1.ReasonStoreWentBack {
			t.ahead++
		}
		switch {
		case spec.State == v1alpha1.StateQuarantined:
			t.quarantined[spec.Reason]++
			if leases[i].LastUnguarded() {
				t.notSilent = append(t.notSilent, &leases[i])
			}
		case spec.State == v1alpha1.StateBound && spec.Holder != nil && !spec.Holder.Guarded:
			t.unguarded++
		}
		switch inside := set.Contains(spec.Addr()); {
		case !inside && f.Kept.Contains(spec.Addr()) && f.IsKept(&leases[i]):
		case !inside && valid:
			t.outside = append(t.outside, &leases[i])
		case inside && spec.State == v1alpha1.StateWarm:
			t.warm++
		case inside:
			t.taken++
		}
	}
	return t
}

// inUse returns the bitmap of the addresses that have a lease or cool down.
func inUse(f Facts) string {
	subnet, err := poolset.Subnet(f.Pool)
	if err != nil {
		return ""
	}
	var bitmap poolset.Bitmap
	mark := func(a netip.Addr) {
		if offset, ok := poolset.Offset(subnet, a); ok {
			bitmap = bitmap.Mark(offset)
		}
	}
	for i := range f.Leases {
		mark(f.Leases[i].Spec.Addr())
	}
	for _, a := range f.Cooling {
		mark(a)
	}
	return poolset.EncodeBitmap(bitmap)
}
