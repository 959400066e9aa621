package holder

import "github.com/fenceline/fenceline/apis/v1alpha1"

// HasPredecessor tells whether a Quarantined lease names a holder that may be
// claimed against. One that was set aside because of a stranger does not: the
// stranger may be a pod whose record was lost (R4).
func HasPredecessor(s *v1alpha1.IPLeaseSpec) bool {
	return s.Reason != v1alpha1.ReasonConflict || s.Previous != nil
}

// Asserted tells whether Kubernetes or a person vouches for the last holder's
// end. Only previous tells: the lease's own reason may be about another machine, on
// which a take-over was not confirmed, or about a conflict that came later.
func Asserted(s *v1alpha1.IPLeaseSpec) bool {
	return s.Previous != nil && isAssertion(s.Previous.Reason)
}

func isAssertion(r v1alpha1.LeaseReason) bool {
	return r == v1alpha1.ReasonNodeGone || r == v1alpha1.ReasonOutOfService
}
