// SPDX-License-Identifier: Apache-2.0

package lease

import "github.com/fenceline/fenceline/apis/v1alpha1"

// HasPredecessor reports whether a Quarantined lease names a holder that may be
// claimed against. A lease that was quarantined because of a stranger does not: the
// stranger may be a pod whose record was lost (R4).
func HasPredecessor(s *v1alpha1.IPLeaseSpec) bool {
	return s.Reason != v1alpha1.ReasonConflict || s.Previous != nil
}

// Asserted reports whether Kubernetes or a person asserts the end of the last
// holder. Only the reason in spec.previous counts: the lease's own reason may be
// about another machine, on which a take-over was not confirmed, or about a later
// conflict.
func Asserted(s *v1alpha1.IPLeaseSpec) bool {
	return s.Previous != nil && isAssertion(s.Previous.Reason)
}

func isAssertion(r v1alpha1.LeaseReason) bool {
	return r == v1alpha1.ReasonNodeGone || r == v1alpha1.ReasonOutOfService
}
