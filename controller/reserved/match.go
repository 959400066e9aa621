// SPDX-License-Identifier: Apache-2.0

package reserved

import (
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// match returns the leases of each reservation's addresses, in one pass over all leases. union has the
// addresses of all reservations, and rules most leases out with one search.
func match(sets []poolset.Set, union poolset.Set, leases []v1alpha1.IPLease) [][]*v1alpha1.IPLease {
	found := make([][]*v1alpha1.IPLease, len(sets))
	for i := range leases {
		a := leases[i].Spec.Addr()
		if !union.Contains(a) {
			continue
		}
		for s := range sets {
			if sets[s].Contains(a) {
				found[s] = append(found[s], &leases[i])
			}
		}
	}
	return found
}
