package reserved

import (
	"net/netip"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// match finds the leases of each reservation's addresses, in one pass over all
// leases. Of them most are in no reservation, which union tells at once.
func match(sets []ipam.Set, union ipam.Set, leases []v1alpha1.IPLease) [][]*v1alpha1.IPLease {
	found := make([][]*v1alpha1.IPLease, len(sets))
	for i := range leases {
		a, ok := address(&leases[i])
		if !ok || !union.Contains(a) {
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

// address is false for text that is none, which the API server refuses in a lease.
func address(l *v1alpha1.IPLease) (netip.Addr, bool) {
	a, err := netip.ParseAddr(l.Spec.Address)
	return a, err == nil
}
