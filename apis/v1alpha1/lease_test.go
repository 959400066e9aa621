// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestTheTokenOfTheLastHolder(t *testing.T) {
	for name, row := range map[string]struct {
		lease IPLease
		want  uint64
	}{
		"of a lease that was not written since it was bound": {IPLease{Spec: IPLeaseSpec{State: StateBound, Holder: &Holder{}}}, 7},
		"of a lease that was":                                {IPLease{Spec: IPLeaseSpec{State: StateBound, Holder: &Holder{Token: 5}}}, 5},
		"of a kept address":                                  {IPLease{Spec: IPLeaseSpec{State: StateRetained, Holder: &Holder{Token: 5}}}, 5},
		"of a kept address, if it was not known":             {IPLease{Spec: IPLeaseSpec{State: StateRetained, Holder: &Holder{}}}, 0},
		"of a holder before the present one": {
			IPLease{Spec: IPLeaseSpec{State: StateBound, Holder: &Holder{Token: 5}, Previous: &PreviousHolder{Token: 3}}}, 3},
		"of a holder before the present one, if it is not known": {
			IPLease{Spec: IPLeaseSpec{State: StateBound, Holder: &Holder{Token: 5}, Previous: &PreviousHolder{}}}, 0},
		"of an address that was Warm": {IPLease{Spec: IPLeaseSpec{State: StateWarm}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			row.lease.ResourceVersion = "7"
			check.Equal(t, row.lease.LastToken(), row.want, "token")
		})
	}
}
