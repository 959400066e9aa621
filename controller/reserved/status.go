// SPDX-License-Identifier: Apache-2.0

package reserved

import (
	"fmt"
	"net/netip"
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
	reasonConflict     = "AnotherHost"
)

// Facts is the input from which the status of a reservation is computed.
type Facts struct {
	Reservation *v1alpha1.ReservedIP
	// Invalid joins a problem for every entry that cannot be read.
	Invalid error
	// Leases are the leases of its addresses, in any pool and network, but not those of the one for whom the addresses are
	// kept.
	Leases []*v1alpha1.IPLease
	// Other is another reservation, or a Service, that has one of its addresses, if one of both is for somebody.
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
	if !r.IsForNobody() || f.Other != "" {
		all = append(all, condition.If(f.Other != "", v1alpha1.ConditionContested, reasonTwice,
			"nobody gets an address that "+f.Other+" has too: remove it from one of both"))
	}
	if mac := r.Machine(); mac != "" {
		all = append(all, conflict(r, mac))
	} else if !r.IsForNobody() {
		all = append(all, subject(f))
	}
	was := slices.DeleteFunc(slices.Clone(r.Status.Conditions), func(old metav1.Condition) bool {
		return !slices.ContainsFunc(all, func(c metav1.Condition) bool { return c.Type == old.Type })
	})
	return v1alpha1.ReservedIPStatus{
		ObservedGeneration: r.Generation,
		Speakers: slices.DeleteFunc(slices.Clone(r.Status.Speakers), func(s v1alpha1.Speaker) bool {
			// A virtual address has a pod as its speaker, that of a machine a host without one.
			isOther := s.Pod == "" && r.Machine() == "" || s.Pod != "" && r.Spec.Virtual == nil
			return isOther || !slices.ContainsFunc(r.Spec.IPs, func(text string) bool {
				addr, err := netip.ParseAddr(text)
				return err == nil && addr.String() == s.Address
			})
		}),
		InUse:      int64(len(f.Leases)),
		Conditions: condition.Set(was, r.Generation, f.Now, all...),
	}
}

func conflict(r *v1alpha1.ReservedIP, mac v1alpha1.MAC) metav1.Condition {
	var others []string
	for _, s := range r.Status.Speakers {
		if s.MAC != mac {
			others = append(others, fmt.Sprintf("%s by %s (heard by node %s)", s.Address, s.MAC, s.Node))
		}
	}
	return condition.If(len(others) > 0, v1alpha1.ConditionConflict, reasonConflict,
		"addresses of the machine are used by other hosts: "+condition.Few(others, ", "))
}

func subject(f Facts) metav1.Condition {
	if f.Unknown != nil {
		return metav1.Condition{Type: v1alpha1.ConditionSubjectMissing, Status: metav1.ConditionUnknown, Reason: reasonUnreadable, Message: f.Unknown.Error()}
	}
	return condition.If(f.Missing != "", v1alpha1.ConditionSubjectMissing, reasonNotFound,
		"there is no "+f.Missing+"; the addresses stay reserved")
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
