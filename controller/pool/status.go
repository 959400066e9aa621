// Package pool publishes what is known of each IPPool: counts, the bitmap of
// addresses in use, conditions; and keeps a pool until its last lease is gone.
package pool

import (
	"math"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Facts are what a status is made of.
type Facts struct {
	Pool *v1alpha1.IPPool
	// Leases of the pool.
	Leases []v1alpha1.IPLease
	// Cooling are addresses freed a moment ago.
	Cooling []netip.Addr
	// Others are the other pools of the cluster.
	Others []v1alpha1.IPPool
	// Reserved are the addresses that no pool hands out.
	Reserved ipam.Set
	// Agents that there are, and Shares into which they divide a pool.
	Agents, Shares int
	// Served is on how many nodes an agent may keep Warm leases of the pool.
	Served int
	Now    metav1.Time
}

// Report is what there is to say of a pool.
type Report struct {
	// Status with conditions; those that stay as they were keep their time of transition.
	Status v1alpha1.IPPoolStatus
	// Quarantined counts the Quarantined leases by reason.
	Quarantined map[v1alpha1.LeaseReason]int64
	// Outside is how many leases hold addresses that the pool does not hand out.
	Outside int64
	// Free is how many addresses of the pool have no lease, or a Warm one.
	Free int64
}

// NewReport makes the report on a pool.
func NewReport(f Facts) Report {
	offered, problem := ipam.Addresses(f.Pool)
	if problem == nil {
		problem = ipam.Validate(f.Pool)
	}
	set := offered.Minus(f.Reserved)
	t := tally(f.Leases, set, problem == nil)

	r := Report{Quarantined: t.quarantined, Outside: int64(len(t.outside))}
	r.Status = v1alpha1.IPPoolStatus{
		ObservedGeneration: f.Pool.Generation,
		Total:              clamp(set.Len()),
		Used:               int64(len(f.Leases)),
		Bound:              t.states[v1alpha1.StateBound],
		Warm:               t.states[v1alpha1.StateWarm],
		Quarantined:        t.states[v1alpha1.StateQuarantined],
		Retained:           t.states[v1alpha1.StateRetained],
		// Minus twice, because the length of a large set has no difference.
		Reserved: clamp(offered.Minus(set).Len()),
		InUse:    inUse(f),
		Agents:   int64(f.Agents),
		Served:   int64(f.Served),
		Shares:   int64(f.Shares),
	}
	r.Free = max(0, r.Status.Total-t.taken)
	r.Status.Free = max(0, r.Free-t.warm)
	r.Status.Scarce = isScarce(f, r.Free, r.Status.Total)
	r.Status.Conditions = conditions(f, t, r, problem, overlapOf(f.Pool, set, f.Others))
	return r
}

// counts are the leases of a pool by what they mean for it.
type counts struct {
	states      map[v1alpha1.LeaseState]int64
	quarantined map[v1alpha1.LeaseReason]int64
	// unguarded are Bound leases whose holder cannot be fenced.
	unguarded int64
	// ahead are Bound leases whose holder cannot be fenced because the store went back.
	ahead int64
	// taken is how many addresses of the pool have a lease that keeps them from
	// an ADD: any but Warm, which is given up to whoever needs it. warm counts these.
	taken, warm int64
	// outside are the leases whose address the pool does not hand out.
	outside []*v1alpha1.IPLease
}

// tally counts the leases. A pool that is not valid hands nothing out, which
// says nothing about its leases.
func tally(leases []v1alpha1.IPLease, set ipam.Set, valid bool) counts {
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
		case spec.State == v1alpha1.StateBound && spec.Holder != nil && !spec.Holder.Guarded:
			t.unguarded++
		}
		// The API server refuses leases whose address is none.
		a, err := netip.ParseAddr(spec.Address)
		switch inside := err == nil && set.Contains(a); {
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

// inUse marks the addresses with a lease and those that cool down.
func inUse(f Facts) string {
	subnet, err := ipam.Subnet(f.Pool)
	if err != nil {
		return ""
	}
	var bitmap ipam.Bitmap
	mark := func(a netip.Addr) {
		if offset, ok := ipam.Offset(subnet, a); ok {
			bitmap = bitmap.Mark(offset)
		}
	}
	for i := range f.Leases {
		if a, err := netip.ParseAddr(f.Leases[i].Spec.Address); err == nil {
			mark(a)
		}
	}
	for _, a := range f.Cooling {
		mark(a)
	}
	return ipam.EncodeBitmap(bitmap)
}

func clamp(n uint64) int64 {
	if n > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}
