// SPDX-License-Identifier: Apache-2.0

package reserved

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
)

// Reasons of conditions.
const (
	reasonReady        = "Ready"
	reasonInvalid      = "Invalid"
	reasonAddressInUse = "AddressInUse"
	reasonTwice        = "ReservedTwice"
	reasonNotFound     = "NotFound"
	reasonUnreadable   = "Unreadable"
)

// Facts is the input from which the status of a reservation is computed.
type Facts struct {
	Reservation *v1alpha1.ReservedIP
	// Invalid joins a problem for every entry that cannot be read.
	Invalid error
	// Leases are the leases of its addresses, in any pool and network, but not those of the one for whom the addresses are
	// kept.
	Leases []*v1alpha1.IPLease
	// Other is another reservation that has one of its addresses, if one of both is for somebody.
	Other string
	// Missing names the one for whom the addresses are kept, if there is no such object. Unknown is the reason for
	// which that is not known.
	Missing string
	Unknown error
	Now     metav1.Time
}

// Status computes the status of a reservation. A condition whose status stays keeps its time of
// transition.
func Status(f Facts) v1alpha1.ReservedIPStatus {
	r := f.Reservation
	all := []metav1.Condition{ready(f.Invalid), inUse(f.Leases)}
	if r.Spec.For != nil || f.Other != "" {
		all = append(all, condition.If(f.Other != "", v1alpha1.ConditionContested, reasonTwice,
			"nobody gets an address that ReservedIP "+f.Other+" has too: remove it from one of both"))
	}
	if r.Spec.For != nil {
		all = append(all, subject(f))
	}
	was := slices.DeleteFunc(slices.Clone(r.Status.Conditions), func(old metav1.Condition) bool {
		return !slices.ContainsFunc(all, func(c metav1.Condition) bool { return c.Type == old.Type })
	})
	return v1alpha1.ReservedIPStatus{
		ObservedGeneration: r.Generation,
		InUse:              int64(len(f.Leases)),
		Conditions:         condition.Set(was, r.Generation, f.Now, all...),
	}
}

func subject(f Facts) metav1.Condition {
	if f.Unknown != nil {
		return metav1.Condition{Type: v1alpha1.ConditionSubjectMissing, Status: metav1.ConditionUnknown, Reason: reasonUnreadable, Message: f.Unknown.Error()}
	}
	return condition.If(f.Missing != "", v1alpha1.ConditionSubjectMissing, reasonNotFound,
		"there is no "+f.Missing+"; the addresses stay reserved for it")
}

func ready(invalid error) metav1.Condition {
	if invalid == nil {
		return condition.True(v1alpha1.ConditionReady, reasonReady, "")
	}
	return condition.False(v1alpha1.ConditionReady, reasonInvalid, "the other entries are reserved: "+condition.Problems(invalid))
}

func inUse(leases []*v1alpha1.IPLease) metav1.Condition {
	return condition.If(len(leases) > 0, v1alpha1.ConditionInUse, reasonAddressInUse,
		"reserved once they are free: "+condition.Leases(leases))
}
