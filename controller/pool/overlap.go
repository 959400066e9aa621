// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/internal/poolset"
)

// overlap has the pools of a network that conflict with a pool. Each list is for people.
type overlap struct {
	// theirs names the pools that hand out addresses of this pool, with these addresses.
	theirs []string
	// ours names the pools that do not hand out some of their addresses, because this pool does.
	ours []string
	// gateways names the pools whose gateway is an address of this pool.
	gateways []string
	// givers names the pools that hand out the gateway of this pool.
	givers []string
	// masks names the pools with another subnet that overlaps the subnet of this pool.
	masks []string
}

// overlapOf compares a pool with the other pools of its network. set is the addresses that the pool
// hands out. A reserved address is never common.
func overlapOf(pool *v1alpha1.IPPool, set poolset.Set, shares []poolset.Share, f Facts) overlap {
	var found overlap
	for _, share := range shares {
		if s := share.Theirs.Minus(f.Reserved); s.Len() > 0 {
			found.theirs = append(found.theirs, named(share.Pool, s))
		}
		if s := share.Ours.Minus(f.Reserved); s.Len() > 0 {
			found.ours = append(found.ours, named(share.Pool, s))
		}
	}
	subnet, err := poolset.Subnet(pool)
	if err != nil {
		return found
	}
	for i := range f.Others {
		other := &f.Others[i]
		s, err := poolset.Subnet(other)
		if other.Name == pool.Name || other.Spec.Network != pool.Spec.Network || other.DeletionTimestamp != nil ||
			err != nil || !s.Overlaps(subnet) {
			continue
		}
		if s != subnet {
			found.masks = append(found.masks, fmt.Sprintf("%s (%s)", other.Name, s))
		}
		if slices.ContainsFunc(other.NeverLeased(), set.Contains) {
			found.gateways = append(found.gateways, other.Name)
		}
		if theirs, err := poolset.Addresses(other); err == nil && slices.ContainsFunc(pool.NeverLeased(), theirs.Contains) {
			found.givers = append(found.givers, other.Name)
		}
	}
	for _, names := range [][]string{found.gateways, found.givers, found.masks} {
		// The order of the cache is random, and each change of a message is a write.
		slices.Sort(names)
	}
	return found
}

// named returns a pool with its addresses: "blue (10.6.0.4, 10.6.0.9-10.6.0.20)".
func named(pool string, set poolset.Set) string {
	return fmt.Sprintf("%s (%s)", pool, condition.Few(set.Entries(), ", "))
}

// mayOverlap reports whether two pools are of one network, and their subnets overlap. An unreadable
// subnet may overlap. Neither network nor subnet ever changes.
func mayOverlap(a, b *v1alpha1.IPPool) bool {
	if a.Spec.Network != b.Spec.Network {
		return false
	}
	x, errX := poolset.Subnet(a)
	y, errY := poolset.Subnet(b)
	return errX != nil || errY != nil || x.Overlaps(y)
}
