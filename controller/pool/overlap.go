// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/apis/poolset"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// overlap has the pools of a network that conflict with a pool.
type overlap struct {
	// with names all pools that have an address in common with this pool.
	with []string
	// behind names the older ones of these pools. They keep the common addresses.
	behind []string
	// gateways names the pools whose gateway is an address of this pool.
	gateways []string
	// givers names the pools that hand out the gateway of this pool.
	givers []string
}

// overlapOf compares the addresses of a pool with the other pools of its network. The lease name
// ensures that a common address is handed out once. But the gateway, routes and affinities of that
// address must not depend on chance, so the younger one of two pools with a common address is not
// Ready. A reserved address is never common.
func overlapOf(pool *v1alpha1.IPPool, set poolset.Set, others []v1alpha1.IPPool) overlap {
	var found overlap
	subnet, err := poolset.Subnet(pool)
	if err != nil {
		return found
	}
	for i := range others {
		other := &others[i]
		if other.Name == pool.Name || other.Spec.Network != pool.Spec.Network {
			continue
		}
		// Most pairs have different subnets, and this comparison is cheap.
		if s, err := poolset.Subnet(other); err != nil || !s.Overlaps(subnet) {
			continue
		}
		theirs, err := poolset.Addresses(other)
		if err != nil {
			continue
		}
		if theirs.Overlaps(set) {
			found.with = append(found.with, other.Name)
			if isOlder(other, pool) {
				found.behind = append(found.behind, other.Name)
			}
		}
		if handsOut(set, other.Spec.Gateway) {
			found.gateways = append(found.gateways, other.Name)
		}
		if handsOut(theirs, pool.Spec.Gateway) {
			found.givers = append(found.givers, other.Name)
		}
	}
	for _, names := range [][]string{found.with, found.behind, found.gateways, found.givers} {
		// The order of the cache is random, and each change of a message is a write.
		slices.Sort(names)
	}
	return found
}

func handsOut(set poolset.Set, gateway *string) bool {
	if gateway == nil {
		return false
	}
	a, err := netip.ParseAddr(*gateway)
	return err == nil && set.Contains(a)
}

func isOlder(a, b *v1alpha1.IPPool) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}
