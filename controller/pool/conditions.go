package pool

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
)

// Reasons of conditions. Where an agent has a word for the same, it is the same.
const (
	reasonReady        = "Ready"
	reasonDeleting     = string(ipam.Deleting)
	reasonDisabled     = string(ipam.Disabled)
	reasonInvalid      = string(ipam.Invalid)
	reasonAllExcluded  = string(ipam.AllExcluded)
	reasonAllReserved  = string(ipam.AllReserved)
	reasonOverlapping  = "Overlapping"
	reasonShared       = "SharedAddresses"
	reasonGateway      = "GatewayHandedOut"
	reasonNoAddress    = "NoAddress"
	reasonAddressLeft  = "AddressLeft"
	reasonNotGuarded   = "HolderWithoutGuard"
	reasonAllGuarded   = "AllHoldersGuarded"
	reasonAddressInUse = "AddressInUse"
	reasonTokensAhead  = "TokensAhead"
	reasonNone         = "None"
)

// conditions returns the pool's conditions as they are now.
func conditions(f Facts, t counts, r Report, problem error, o overlap) []metav1.Condition {
	return condition.Set(f.Pool.Status.Conditions, f.Pool.Generation, f.Now,
		ready(f, r, problem, o), overlapping(o), exhausted(t, r), unfenced(t), outside(t, problem), wentBack(t))
}

// ready names the first reason for which nothing is allocated, in the order in
// which an agent finds them, so that pool and pod tell the same story.
func ready(f Facts, r Report, problem error, o overlap) metav1.Condition {
	no := func(reason, text string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: text}
	}
	switch {
	case f.Pool.DeletionTimestamp != nil:
		return no(reasonDeleting, "the pool is deleted once its leases are gone: "+kinds(r.Status))
	case ptr.Deref(f.Pool.Spec.Disable, false):
		return no(reasonDisabled, "spec.disable stops new allocations; addresses in use stay")
	case problem != nil:
		return no(reasonInvalid, condition.Problems(problem))
	case r.Status.Total == 0 && r.Status.Reserved > 0:
		return no(reasonAllReserved, "ReservedIPs keep back every address")
	case r.Status.Total == 0:
		return no(reasonAllExcluded, "gateway and excludeIPs leave no address to hand out")
	case len(o.behind) > 0:
		return no(reasonOverlapping, "older pools have some of the addresses: "+condition.Few(o.behind, ", "))
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
		{o.with, reasonShared, "addresses are shared with pools: "},
		{o.gateways, reasonGateway, "addresses are the gateways of pools: "},
		{o.givers, reasonGateway, "the gateway is an address of pools: "},
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
	// Otherwise no numbers: a message that changes with each lease is a write with each lease.
	return c
}

func unfenced(t counts) metav1.Condition {
	if t.unguarded == 0 {
		return metav1.Condition{Type: v1alpha1.ConditionUnfenced, Status: metav1.ConditionFalse, Reason: reasonAllGuarded}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionUnfenced, Status: metav1.ConditionTrue, Reason: reasonNotGuarded,
		Message: "some holders have no guard: their addresses cannot be fenced, only probed",
	}
}

func wentBack(t counts) metav1.Condition {
	if t.ahead == 0 {
		return metav1.Condition{Type: v1alpha1.ConditionStoreWentBack, Status: metav1.ConditionFalse, Reason: reasonNone}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionStoreWentBack, Status: metav1.ConditionTrue, Reason: reasonTokensAhead,
		Message: "the store was restored without --bump-revision: holders have tokens that it has not reached, and cannot be taken from by force; restore it again with that flag",
	}
}

func outside(t counts, problem error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionOutside, Status: metav1.ConditionFalse, Reason: reasonNone}
	switch {
	case problem != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reasonInvalid, "what the pool hands out cannot be read"
	case len(t.outside) > 0:
		c.Status, c.Reason = metav1.ConditionTrue, reasonAddressInUse
		c.Message = "not handed out again once they are free: " + condition.Leases(t.outside)
	}
	return c
}

// kinds says how many leases there are in which state: "3 Bound, 1 Retained".
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
