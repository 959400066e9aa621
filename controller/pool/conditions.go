package pool

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Reasons of conditions.
const (
	reasonReady        = "Ready"
	reasonInvalid      = "Invalid"
	reasonOverlapping  = "Overlapping"
	reasonNoAddress    = "NoAddress"
	reasonDeleting     = "Deleting"
	reasonNone         = "None"
	reasonAddressLeft  = "AddressLeft"
	reasonNotGuarded   = "HolderWithoutGuard"
	reasonAllGuarded   = "AllHoldersGuarded"
	reasonSharedByPool = "SharedAddresses"
)

// overlap is what a pool shares with others of its network.
type overlap struct {
	// with names all pools that share an address.
	with []string
	// behind are those of them that are older: their claim to the addresses stands.
	behind []string
}

// overlapOf finds the pools of the same network that have an address in common.
// Lease names keep such addresses from being given twice, but gateway, routes and
// affinities of an address must not depend on luck: of two pools that share an
// address, the younger one is not Ready.
func overlapOf(pool *v1alpha1.IPPool, others []v1alpha1.IPPool) overlap {
	var found overlap
	subnet, err := ipam.Subnet(pool)
	if err != nil {
		return found
	}
	set, err := ipam.Addresses(pool)
	if err != nil {
		return found
	}
	for i := range others {
		other := &others[i]
		if other.Name == pool.Name || other.Spec.Network != pool.Spec.Network {
			continue
		}
		// Most pairs differ in the subnet already, which is cheap to see.
		if s, err := ipam.Subnet(other); err != nil || !s.Overlaps(subnet) {
			continue
		}
		if theirs, err := ipam.Addresses(other); err != nil || !theirs.Overlaps(set) {
			continue
		}
		found.with = append(found.with, other.Name)
		if isOlder(other, pool) {
			found.behind = append(found.behind, other.Name)
		}
	}
	return found
}

func isOlder(a, b *v1alpha1.IPPool) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

func setConditions(status *v1alpha1.IPPoolStatus, f Facts, invalid error, o overlap, unguarded int) {
	set := func(kind string, is bool, reason, message string) {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: f.Pool.Generation, LastTransitionTime: f.Now,
		}
		if is {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}

	switch {
	case f.Pool.DeletionTimestamp != nil:
		set(v1alpha1.ConditionReady, false, reasonDeleting, fmt.Sprintf("the pool is deleted once its %d leases are gone", status.Used))
	case invalid != nil:
		// Joined errors come a line each.
		set(v1alpha1.ConditionReady, false, reasonInvalid, strings.ReplaceAll(invalid.Error(), "\n", "; "))
	case len(o.behind) > 0:
		set(v1alpha1.ConditionReady, false, reasonOverlapping, "older pools have some of the addresses: "+strings.Join(o.behind, ", "))
	case status.Total == 0:
		set(v1alpha1.ConditionReady, false, reasonNoAddress, "gateway and excludeIPs leave no address to hand out")
	default:
		set(v1alpha1.ConditionReady, true, reasonReady, "")
	}

	if len(o.with) > 0 {
		set(v1alpha1.ConditionOverlapping, true, reasonSharedByPool, "addresses are shared with pools: "+strings.Join(o.with, ", "))
	} else {
		set(v1alpha1.ConditionOverlapping, false, reasonNone, "")
	}

	if status.Total > 0 && status.Used >= status.Total {
		set(v1alpha1.ConditionExhausted, true, reasonNoAddress, inUseOf(status))
	} else {
		// No numbers: a message that changes with each lease is a write with each lease.
		set(v1alpha1.ConditionExhausted, false, reasonAddressLeft, "")
	}

	if unguarded > 0 {
		set(v1alpha1.ConditionUnfenced, true, reasonNotGuarded, "some holders have no guard: their addresses cannot be fenced, only probed")
	} else {
		set(v1alpha1.ConditionUnfenced, false, reasonAllGuarded, "")
	}
}

func inUseOf(status *v1alpha1.IPPoolStatus) string {
	return fmt.Sprintf("all %d addresses are in use: %d bound, %d warm, %d quarantined, %d retained",
		status.Total, status.Bound, status.Warm, status.Quarantined, status.Retained)
}
