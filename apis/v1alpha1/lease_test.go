// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// Token and MAC are always those of one holder: the claim goes to this MAC and asks for the ack of this token.
func TestTokenAndMACOfTheLastHolder(t *testing.T) {
	const now, before = "02:00:00:00:00:05", "02:00:00:00:00:03"
	for name, row := range map[string]struct {
		lease IPLease
		token uint64
		mac   string
	}{
		"of a lease that was not written since it was bound": {IPLease{Spec: IPLeaseSpec{State: StateBound, Holder: &Holder{MAC: now}}}, 7, now},
		"of a lease that was":                                {IPLease{Spec: IPLeaseSpec{State: StateBound, Holder: &Holder{Token: 5, MAC: now}}}, 5, now},
		"of a kept address":                                  {IPLease{Spec: IPLeaseSpec{State: StateRetained, Holder: &Holder{Token: 5, MAC: now}}}, 5, now},
		"of a kept address, if it was not known":             {IPLease{Spec: IPLeaseSpec{State: StateRetained, Holder: &Holder{}}}, 0, ""},
		"of a take-over that was not proven":                 {IPLease{Spec: IPLeaseSpec{State: StateQuarantined, Holder: &Holder{Token: 5, MAC: now}}}, 5, now},
		"of a holder before the present one": {
			IPLease{Spec: IPLeaseSpec{State: StateBound, Holder: &Holder{Token: 5, MAC: now}, Previous: &PreviousHolder{Token: 3, MAC: before}}}, 3, before},
		"of a holder before the present one, if it is not known": {
			IPLease{Spec: IPLeaseSpec{State: StateBound, Holder: &Holder{Token: 5, MAC: now}, Previous: &PreviousHolder{}}}, 0, ""},
		"of an address that was Warm": {IPLease{Spec: IPLeaseSpec{State: StateWarm}}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			row.lease.ResourceVersion = "7"
			check.Equal(t, row.lease.LastToken(), row.token, "token")
			check.Equal(t, row.lease.LastMAC().String(), row.mac, "MAC")
		})
	}
}
