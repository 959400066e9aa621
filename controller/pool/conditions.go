// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Reasons of conditions. If an agent also rejects the pool for a reason, the reason has the same
// word as in the agent.
const (
	reasonReady         = "Ready"
	reasonDeleting      = string(poolset.Deleting)
	reasonDisabled      = string(poolset.Disabled)
	reasonInvalid       = string(poolset.Invalid)
	reasonAllExcluded   = string(poolset.AllExcluded)
	reasonAllReserved   = string(poolset.AllReserved)
	reasonOverlapping   = string(poolset.Overlapping)
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
	reasonNone          = "None"
)

// conditions returns the pool's conditions as they are now.
func conditions(f Facts, t counts, r Report, closed poolset.Reason, problem error, o overlap) []metav1.Condition {
	return condition.Set(f.Pool.Status.Conditions, f.Pool.Generation, f.Now,
		ready(r, closed, problem, o), overlapping(o), exhausted(t, r), unfenced(t), outside(t, problem), wentBack(t), answeredByOne(t.hostsOfMany))
}

// ready reports the first reason for which nothing is allocated. An agent rejects the pool for the
// same reason.
func ready(r Report, closed poolset.Reason, problem error, o overlap) metav1.Condition {
	no := func(reason, text string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: text}
	}
	switch closed {
	case poolset.Deleting:
		return no(reasonDeleting, "the pool is deleted once its leases are gone: "+kinds(r.Status))
	case poolset.Disabled:
		return no(reasonDisabled, "spec.disable stops new allocations; addresses in use stay")
	case poolset.Invalid:
		return no(reasonInvalid, condition.Problems(problem))
	case poolset.Overlapping:
		return no(reasonOverlapping, "other pools hand out all of its addresses: "+condition.Few(o.theirs, ", "))
	case poolset.AllReserved:
		return no(reasonAllReserved, "ReservedIPs keep back every address")
	case poolset.AllExcluded:
		return no(reasonAllExcluded, "gateway and excludeIPs leave no address to hand out")
	}
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: reasonReady}
}

func overlapping(o overlap) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionOverlapping, Status: metav1.ConditionFalse, Reason: reasonNone}
	var clauses []string
	for _, part := range []struct {
		pools          []string
		reason, clause string
	}{
		{o.theirs, reasonShared, "other pools hand out addresses of this pool: "},
		{o.ours, reasonShared, "this pool hands out addresses of other pools: "},
		{o.gateways, reasonGateway, "addresses are the gateways of pools: "},
		{o.givers, reasonGateway, "the gateway is an address of pools: "},
		{o.masks, reasonMasks, "the subnet overlaps the other subnets of pools: "},
	} {
		if len(part.pools) == 0 {
			continue
		}
		if len(clauses) == 0 {
			c.Status, c.Reason = metav1.ConditionTrue, part.reason
		}
		clauses = append(clauses, part.clause+condition.Few(part.pools, ", "))
	}
	c.Message = strings.Join(clauses, "; ")
	return c
}

func exhausted(t counts, r Report) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionExhausted, Status: metav1.ConditionFalse, Reason: reasonAddressLeft}
	switch {
	case r.Status.Total == 0:
		c.Reason = reasonNone
	case r.Free == 0:
		c.Status, c.Reason = metav1.ConditionTrue, reasonNoAddress
		c.Message = fmt.Sprintf("all %d addresses are in use; leases: %s", t.taken, kinds(r.Status))
	}
	// Otherwise the message has no numbers, because each change of a message is a write.
	return c
}

func unfenced(t counts) metav1.Condition {
	if len(t.notSilent) > 0 {
		waiting := condition.Leases(t.notSilent) // sorts them
		return metav1.Condition{
			Type: v1alpha1.ConditionUnfenced, Status: metav1.ConditionTrue, Reason: reasonNotSilent,
			Message: fmt.Sprintf("not handed out until the VFs of their last holders, which have no guard, are off: %s; of the first: %s",
				waiting, cmp.Or(t.notSilent[0].Spec.Message, "it is being claimed")),
		}
	}
	if t.unguarded == 0 {
		return metav1.Condition{Type: v1alpha1.ConditionUnfenced, Status: metav1.ConditionFalse, Reason: reasonAllGuarded}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionUnfenced, Status: metav1.ConditionTrue, Reason: reasonNotGuarded,
		Message: "some holders have no guard: their VFs are switched off at the PF, which only a living agent does",
	}
}

func wentBack(t counts) metav1.Condition {
	if t.ahead == 0 {
		return metav1.Condition{Type: v1alpha1.ConditionStoreWentBack, Status: metav1.ConditionFalse, Reason: reasonNone}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionStoreWentBack, Status: metav1.ConditionTrue, Reason: reasonTokensAhead,
		Message: "the store was restored without --bump-revision: holders have greater tokens than the store, so their addresses cannot be taken by force; restore it again with that flag",
	}
}

func outside(t counts, problem error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionOutside, Status: metav1.ConditionFalse, Reason: reasonNone}
	switch {
	case problem != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reasonInvalid, "the addresses of the pool cannot be read"
	case len(t.outside) > 0:
		c.Status, c.Reason = metav1.ConditionTrue, reasonAddressInUse
		c.Message = "not handed out again once they are free: " + condition.Leases(t.outside)
	}
	return c
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
