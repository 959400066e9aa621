package pool

import (
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// overlap is where a pool gets into the way of others of its network.
type overlap struct {
	// with names all pools that share an address.
	with []string
	// behind are those of them that are older: their claim to the addresses stands.
	behind []string
	// gateways names the pools whose gateway this one hands out.
	gateways []string
	// givers names the pools that hand out this one's gateway.
	givers []string
}

// overlapOf compares what a pool hands out with the other pools of its network.
// Lease names keep a shared address from being given twice, but its gateway,
// routes and affinities must not depend on luck: of two pools that share an
// address, the younger one is not Ready. What is reserved is shared by nobody.
func overlapOf(pool *v1alpha1.IPPool, set ipam.Set, others []v1alpha1.IPPool) overlap {
	var found overlap
	subnet, err := ipam.Subnet(pool)
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
		theirs, err := ipam.Addresses(other)
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
		// The cache lists in any order, and a message that changes is a write.
		slices.Sort(names)
	}
	return found
}

func handsOut(set ipam.Set, gateway *string) bool {
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
