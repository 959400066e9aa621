// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"net/netip"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// ReservedSet returns the addresses that at least one of the reservations keeps back. It ignores
// entries that cannot be read; ReservedBy returns their problems.
func ReservedSet(reservations []v1alpha1.ReservedIP) Set {
	var spans []span
	for i := range reservations {
		s, _ := ReservedBy(&reservations[i])
		spans = append(spans, s.spans...)
	}
	return newSet(spans)
}

// ReservedBy returns the addresses that one reservation keeps back. The error joins a SpecError for
// every entry that cannot be read. The set has the addresses of the other entries.
func ReservedBy(r *v1alpha1.ReservedIP) (Set, error) {
	spans, err := parseField("spec.ips", r.Spec.IPs, netip.Prefix{})
	return newSet(spans), err
}
