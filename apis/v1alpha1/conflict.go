// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

// ManyAddresses is the number of addresses of a pool that are quarantined for one MAC. Further
// addresses for which that MAC answers are passed over without a record.
const ManyAddresses = 3

// ConflictMAC returns the MAC of the host for which the address is Quarantined, or "".
func (s *IPLeaseSpec) ConflictMAC() MAC {
	if s.State != StateQuarantined || s.Reason != ReasonConflict || s.Conflict == nil {
		return ""
	}
	return s.Conflict.MAC
}

// IgnoresMAC reports whether conflictDetection.ignoreMACs names a MAC.
func (p *IPPool) IgnoresMAC(mac MAC) bool {
	return p.Spec.ConflictDetection != nil && slices.Contains(p.Spec.ConflictDetection.IgnoreMACs, mac)
}
