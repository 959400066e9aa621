// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"net/netip"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Wish selects Warm leases.
type Wish struct {
	Pool, Parent string
	// ParentIndex is the parent's ifindex. Another interface may have the parent's name now.
	ParentIndex int
	// Mode of the pool. A proof in another mode does not make a lease ready.
	Mode v1alpha1.ConflictMode
	// Has reports whether the pool hands out an address.
	Has func(netip.Addr) bool
	// Addr selects one address, if it is valid.
	Addr netip.Addr
	// Any selects leases that are not ready as well.
	Any bool
}

// Stocked is a Warm lease that an ADD has taken.
type Stocked struct {
	*v1alpha1.IPLease
	// Ready: the address was proven free on the wished parent, and was watched since. The watch may
	// report a doubt late; Doubt reads the kernel's state.
	Ready bool
}
