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
	// Agents that there are, and Shares into which they divide a pool.
	Agents, Shares int
	Now            metav1.Time
}

// Status makes the status of a pool, and counts its Quarantined leases by
// reason. Conditions that stay as they were keep their time of transition.
func Status(f Facts) (v1alpha1.IPPoolStatus, map[v1alpha1.LeaseReason]int64) {
	status := v1alpha1.IPPoolStatus{
		ObservedGeneration: f.Pool.Generation,
		Agents:             int64(f.Agents),
		Shares:             int64(f.Shares),
	}
	for _, c := range f.Pool.Status.Conditions {
		status.Conditions = append(status.Conditions, *c.DeepCopy())
	}
	quarantined, unguarded := count(&status, f.Leases)
	set, err := ipam.Addresses(f.Pool)
	if err == nil {
		err = ipam.Validate(f.Pool)
	}
	status.Total = clamp(set.Len())
	status.InUse = inUse(f)
	status.Scarce = isScarce(&status, f.Pool)

	overlap := overlapOf(f.Pool, f.Others)
	setConditions(&status, f, err, overlap, unguarded)
	return status, quarantined
}

// count counts the leases by state, Quarantined ones by reason, and Bound ones without a guard.
func count(status *v1alpha1.IPPoolStatus, leases []v1alpha1.IPLease) (quarantined map[v1alpha1.LeaseReason]int64, unguarded int) {
	quarantined = map[v1alpha1.LeaseReason]int64{}
	for i := range leases {
		spec := &leases[i].Spec
		status.Used++
		switch spec.State {
		case v1alpha1.StateBound:
			status.Bound++
			if spec.Holder != nil && !spec.Holder.Guarded {
				unguarded++
			}
		case v1alpha1.StateWarm:
			status.Warm++
		case v1alpha1.StateQuarantined:
			status.Quarantined++
			quarantined[spec.Reason]++
		case v1alpha1.StateRetained:
			status.Retained++
		}
	}
	return quarantined, unguarded
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
		// The API server refuses leases whose address is none.
		if a, err := netip.ParseAddr(f.Leases[i].Spec.Address); err == nil {
			mark(a)
		}
	}
	for _, a := range f.Cooling {
		mark(a)
	}
	return ipam.EncodeBitmap(bitmap)
}

// isScarce says whether Warm leases on one node may keep another from an
// address: fewer addresses are left, Warm ones among them, than all agents
// together would keep ready. Warm ones count as left, or giving them up would
// end the scarcity and bring them back.
func isScarce(status *v1alpha1.IPPoolStatus, pool *v1alpha1.IPPool) bool {
	if pool.Spec.Warm == nil || *pool.Spec.Warm == 0 {
		return false
	}
	left := status.Total - (status.Used - status.Warm)
	return left < status.Agents**pool.Spec.Warm
}

func clamp(n uint64) int64 {
	if n > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}
