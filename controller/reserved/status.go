// SPDX-License-Identifier: Apache-2.0

// Package reserved publishes the status of ReservedIPs: the entries that cannot be read, and the leases
// that still have a reserved address. Agents read the reservations themselves. A reservation takes no
// address from its holder.
package reserved

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
)

// Reasons of conditions.
const (
	reasonReady        = "Ready"
	reasonInvalid      = "Invalid"
	reasonAddressInUse = "AddressInUse"
)

// Facts is the input from which the status of a reservation is computed.
type Facts struct {
	Reservation *v1alpha1.ReservedIP
	// Invalid joins a problem for every entry that cannot be read.
	Invalid error
	// Leases are the leases of its addresses, in any pool and network.
	Leases []*v1alpha1.IPLease
	Now    metav1.Time
}

// Status computes the status of a reservation. A condition whose status stays keeps its time of
// transition.
func Status(f Facts) v1alpha1.ReservedIPStatus {
	r := f.Reservation
	return v1alpha1.ReservedIPStatus{
		ObservedGeneration: r.Generation,
		InUse:              int64(len(f.Leases)),
		Conditions:         condition.Set(r.Status.Conditions, r.Generation, f.Now, ready(f.Invalid), inUse(f.Leases)),
	}
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
