// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"errors"
	"fmt"

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
	spans := make([]span, 0, len(r.Spec.IPs))
	var errs []error
	for i, entry := range r.Spec.IPs {
		sp, err := parseEntry(entry)
		if err != nil {
			errs = append(errs, &SpecError{fmt.Sprintf("spec.ips[%d]", i), err})
			continue
		}
		spans = append(spans, sp)
	}
	return newSet(spans), errors.Join(errs...)
}
