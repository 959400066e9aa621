// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"net/netip"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Reason is the reason for which a pool hands out no new address. A metric may have it as label. A
// condition of the pool and the rejection by an agent use the same words.
type Reason string

// The reasons, in the order in which Closed looks for them.
const (
	Deleting    Reason = "Deleting"
	Disabled    Reason = "Disabled"
	Invalid     Reason = "Invalid"
	AllExcluded Reason = "AllExcluded"
	Overlapping Reason = "Overlapping"
	AllReserved Reason = "AllReserved"
)

// Closed returns the first reason for which a pool hands out no new address, or "" if it hands out
// addresses. problem is the error of Validate, all the result of Addresses, own the result of Own, and
// left is own without the reserved addresses. No reason takes an address from its holder.
func Closed(pool *v1alpha1.IPPool, problem error, all, own, left Set) Reason {
	switch {
	case pool.DeletionTimestamp != nil:
		return Deleting
	case pool.Spec.Disable != nil && *pool.Spec.Disable:
		return Disabled
	case problem != nil:
		return Invalid
	case all.Len() == 0:
		return AllExcluded
	case own.Len() == 0:
		return Overlapping
	case left.Len() == 0:
		return AllReserved
	}
	return ""
}

// Givers returns the names of the pools of a network that hand out an address, or may do so again:
// not those that are being deleted, but those that are disabled, and those with unreadable
// addresses whose subnet may have the address. No pool hands out a reserved address.
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
