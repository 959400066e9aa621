// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/internal/inventory"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Reasons of conditions. If an agent also rejects the pool for a reason, the reason has the same
// word as in the agent.
const (
	reasonReady         = "Ready"
	reasonDeleting      = string(poolset.Deleting)
	reasonDisabled      = string(poolset.Disabled)
	reasonInvalid       = string(poolset.Invalid)
	reasonMasks         = "SubnetsDiffer"
	reasonShared        = "SharedAddresses"
	reasonGateway       = "GatewayHandedOut"
	reasonNoAddress     = "NoAddress"
	reasonAddressLeft   = "AddressLeft"
	reasonNotGuarded    = "HolderWithoutGuard"
	reasonNotSilent     = "HolderNotSilent"
	reasonAllGuarded    = "AllHoldersGuarded"
	reasonAddressInUse  = "AddressInUse"
	reasonTokensAhead   = "TokensAhead"
	reasonManyConflicts = "ManyConflicts"
	reasonManyNodes     = "ManyNodes"
)

// conditions returns the pool's conditions as they are now.
func conditions(f Facts, t counts, r metrics.Pool, closed poolset.Reason, problem error, o overlap) []metav1.Condition {
	return condition.Set(f.Pool.Status.Conditions, f.Pool.Generation, f.Now,
		ready(r.Status, closed, problem, o), overlapping(o), exhausted(t, r.Status, r.Free), unfenced(t), outside(t, problem), wentBack(t), answeredByOne(t.hostsOfMany),
		sharedMAC(sharedMACs(f.Pool, f.Leases)))
}

// ready reports the first reason for which nothing is allocated. An agent rejects the pool for the
// same reason.
func ready(status v1alpha1.IPPoolStatus, closed poolset.Reason, problem error, o overlap) metav1.Condition {
	var why string
	switch closed {
	case "":
		return condition.True(v1alpha1.ConditionReady, reasonReady, "")
	case poolset.Deleting:
		why = "the pool is deleted once its leases are gone: " + kinds(status)
	case poolset.Disabled:
		why = "spec.disable stops new allocations; addresses in use stay"
	case poolset.Invalid:
		why = condition.Problems(problem)
	case poolset.Overlapping:
		why = "other pools hand out all of its addresses: " + condition.Few(o.theirs, ", ")
	case poolset.AllReserved:
		why = "ReservedIPs and Services of type LoadBalancer keep back every address"
	case poolset.AllExcluded:
		why = "gateway, excludeIPs and sourceGuardAllow.cidrs leave no address to hand out"
	}
	return condition.False(v1alpha1.ConditionReady, string(closed), why)
}

func overlapping(o overlap) metav1.Condition {
	var reason string
	var clauses []string
	for _, part := range []struct {
		pools          []string
		reason, clause string
	}{
		{o.theirs, reasonShared, "other pools hand out addresses of this pool: "},
		{o.ours, reasonShared, "this pool hands out addresses of other pools: "},
		{o.gateways, reasonGateway, "addresses are the gateway or virtual addresses of pools: "},
		{o.givers, reasonGateway, "the gateway or a virtual address is an address of pools: "},
		{o.masks, reasonMasks, "the subnet overlaps the other subnets of pools: "},
	} {
		if len(part.pools) == 0 {
			continue
		}
		reason = cmp.Or(reason, part.reason)
		clauses = append(clauses, part.clause+condition.Few(part.pools, ", "))
	}
	return condition.If(len(clauses) > 0, v1alpha1.ConditionOverlapping, reason, strings.Join(clauses, "; "))
}

func exhausted(t counts, status v1alpha1.IPPoolStatus, free int64) metav1.Condition {
	switch {
	case status.Total == 0:
		return condition.False(v1alpha1.ConditionExhausted, condition.None, "")
	case free == 0:
		return condition.True(v1alpha1.ConditionExhausted, reasonNoAddress,
			fmt.Sprintf("all %d addresses are in use; leases: %s", t.taken, kinds(status)))
	}
	// The message has no numbers, because each change of a message is a write.
	return condition.False(v1alpha1.ConditionExhausted, reasonAddressLeft, "")
}

func unfenced(t counts) metav1.Condition {
	switch {
	case len(t.notSilent) > 0:
		waiting := condition.Leases(t.notSilent) // sorts them
		return condition.True(v1alpha1.ConditionUnfenced, reasonNotSilent,
			fmt.Sprintf("not handed out until the VFs of their last holders, which have no guard, are off: %s; of the first: %s",
				waiting, cmp.Or(t.notSilent[0].Spec.Message, "it is being claimed")))
	case t.unguarded > 0:
		return condition.True(v1alpha1.ConditionUnfenced, reasonNotGuarded,
			"some holders have no guard: their VFs are switched off at the PF, which only a living agent does")
	}
	return condition.False(v1alpha1.ConditionUnfenced, reasonAllGuarded, "")
}

func wentBack(t counts) metav1.Condition {
	return condition.If(t.ahead > 0, v1alpha1.ConditionStoreWentBack, reasonTokensAhead,
		"the store was restored without --bump-revision: holders have greater tokens than the store, so their addresses cannot be taken by force; restore it again with that flag")
}

func outside(t counts, problem error) metav1.Condition {
	if problem != nil {
		return metav1.Condition{Type: v1alpha1.ConditionOutside, Status: metav1.ConditionUnknown, Reason: reasonInvalid, Message: "the addresses of the pool cannot be read"}
	}
	return condition.If(len(t.outside) > 0, v1alpha1.ConditionOutside, reasonAddressInUse,
		"not handed out again once they are free: "+condition.Leases(t.outside))
}

// kinds returns the number of leases in each state: "3 Bound, 1 Retained".
func kinds(status v1alpha1.IPPoolStatus) string {
	var parts []string
	for _, k := range []struct {
		n     int64
		state v1alpha1.LeaseState
	}{
		{status.Bound, v1alpha1.StateBound},
		{status.Warm, v1alpha1.StateWarm},
		{status.Quarantined, v1alpha1.StateQuarantined},
		{status.Retained, v1alpha1.StateRetained},
	} {
		if k.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", k.n, k.state))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// hostsOfMany returns the MACs of at least ManyAddresses leases of a pool, without those that the
// pool ignores. In mode Observe the pods keep such addresses, so Bound leases count as well.
func hostsOfMany(pool *v1alpha1.IPPool, leases []v1alpha1.IPLease) (macs []string) {
	seen := map[v1alpha1.MAC]int{}
	for i := range leases {
		spec := &leases[i].Spec
		mac := spec.ConflictMAC()
		if pool.ConflictMode() == v1alpha1.ModeObserve && spec.State == v1alpha1.StateBound && spec.Conflict != nil {
			mac = spec.Conflict.MAC
		}
		if mac == "" || pool.IgnoresMAC(mac) {
			continue
		}
		if seen[mac]++; seen[mac] == v1alpha1.ManyAddresses {
			macs = append(macs, mac)
		}
	}
	// Each change of a message is a write.
	slices.Sort(macs)
	return macs
}

func answeredByOne(macs []string) metav1.Condition {
	return condition.If(len(macs) > 0, v1alpha1.ConditionAnsweredByOne, reasonManyConflicts,
		"hosts that answer for many addresses: "+condition.Few(macs, ", ")+
			"; if such a host is a proxy, add its MAC to spec.conflictDetection.ignoreMACs; if it owns the addresses, exclude them by spec.excludeIPs")
}

// sharedMACs returns the MACs that holders of a pool have on several nodes, each with its pods, without
// those that the pool allows, such as that of VRRP.
func sharedMACs(pool *v1alpha1.IPPool, leases []v1alpha1.IPLease) (found []string) {
	first, shared := make(map[v1alpha1.MAC]*v1alpha1.IPLeaseSpec, len(leases)), map[v1alpha1.MAC][]string{}
	for i := range leases {
		s := &leases[i].Spec
		if s.State != v1alpha1.StateBound || s.Holder == nil {
			continue
		}
		o, known := first[s.Holder.MAC]
		if !known {
			first[s.Holder.MAC] = s
		} else if inventory.ShareMAC(o, s) && !pool.AllowsMAC(s.Holder.MAC) {
			shared[s.Holder.MAC] = append(shared[s.Holder.MAC], inventory.PlaceOf(o), inventory.PlaceOf(s))
		}
	}
	for mac, places := range shared {
		slices.Sort(places)
		found = append(found, mac+" ("+condition.Few(slices.Compact(places), ", ")+")")
	}
	// Each change of a message is a write.
	slices.Sort(found)
	return found
}

func sharedMAC(macs []string) metav1.Condition {
	return condition.If(len(macs) > 0, v1alpha1.ConditionSharedMAC, reasonManyNodes,
		"MACs that pods have on several nodes: "+condition.Few(macs, "; ")+
			"; other hosts reach only one of the pods: give the others another MAC, or list the MAC in spec.sourceGuardAllow.macs if they share it on purpose")
}
