// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"net/netip"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Spoken is a virtual address for which a pod speaks.
type Spoken struct {
	v1alpha1.Speaker
	Addr netip.Addr
	By   *v1alpha1.ReservedIP
}

// Speakers returns the virtual addresses of a pool's subnet for which pods speak.
func Speakers(pool *v1alpha1.IPPool, reservations []v1alpha1.ReservedIP) (all []Spoken) {
	for i := range reservations {
		r := &reservations[i]
		for _, s := range r.Status.Speakers {
			addr, err := netip.ParseAddr(s.Address)
			if err == nil && r.Spec.Virtual != nil && pool.Reaches(r.Spec.Network, addr) {
				all = append(all, Spoken{s, addr, r})
			}
		}
	}
	return all
}

// Virtuals returns the virtual addresses of a pool's subnet, with a reservation that has each.
func Virtuals(pool *v1alpha1.IPPool, reservations []v1alpha1.ReservedIP) map[netip.Addr]*v1alpha1.ReservedIP {
	all := map[netip.Addr]*v1alpha1.ReservedIP{}
	for i := range reservations {
		r := &reservations[i]
		for _, text := range r.Spec.IPs {
			if addr, err := netip.ParseAddr(text); err == nil && r.Spec.Virtual != nil && pool.Reaches(r.Spec.Network, addr) {
				all[addr] = r
			}
		}
	}
	return all
}
