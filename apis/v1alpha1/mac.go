// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net"
	"net/netip"
)

// MACFor returns the MAC that spec.macPolicy of the pool gives to an interface whose first address is
// addr: the prefix and the last four octets of the address. It returns nil if the pool has no policy.
func (p *IPPool) MACFor(addr netip.Addr) (net.HardwareAddr, error) {
	policy := p.Spec.MACPolicy
	if policy == nil {
		return nil, nil
	}
	prefix, err := net.ParseMAC(policy.Prefix + ":00:00:00:00")
	if err != nil || len(prefix) != 6 {
		return nil, fmt.Errorf("pool %s: spec.macPolicy.prefix %q is not two octets such as 0a:58", p.Name, policy.Prefix)
	}
	octets := addr.AsSlice()
	copy(prefix[2:], octets[len(octets)-4:])
	return prefix, nil
}
