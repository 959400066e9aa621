// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"net/netip"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Givers returns the names of the pools of a network that hand out an address, or may do so again. No
// pool hands out a reserved address. A disabled pool counts, because it may be enabled again. A pool
// that is being deleted does not count. A pool with unreadable addresses counts if its subnet may have
// the address.
func Givers(network string, addr netip.Addr, pools []v1alpha1.IPPool, reserved Set) []string {
	if reserved.Contains(addr) {
		return nil
	}
	var names []string
	for i := range pools {
		pool := &pools[i]
		if pool.Spec.Network != network || pool.DeletionTimestamp != nil {
			continue
		}
		subnet, err := Subnet(pool)
		if err == nil && !subnet.Contains(addr) {
			continue // most pools, and this comparison is cheap
		}
		set, problem := Addresses(pool)
		if problem != nil || set.Contains(addr) {
			names = append(names, pool.Name)
		}
	}
	return names
}
