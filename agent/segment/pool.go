// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"net"
	"net/netip"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// ParamsOf returns the parameters for probing the addresses of a pool. Invalid MACs to ignore are
// skipped; the CRD refuses them.
func ParamsOf(pool *v1alpha1.IPPool) ProbeParams {
	p := ProbeParams{Mode: pool.ConflictMode(), Rounds: pool.ProbeRounds(), Interval: pool.ProbeInterval()}
	if c := pool.Spec.ConflictDetection; c != nil {
		for _, text := range c.IgnoreMACs {
			if mac, err := net.ParseMAC(text); err == nil {
				p.Ignore = append(p.Ignore, mac)
			}
		}
	}
	return p
}

// GatewayOf returns the gateway of a pool; an invalid address if it has none.
func GatewayOf(pool *v1alpha1.IPPool) netip.Addr {
	if pool.Spec.Gateway == nil {
		return netip.Addr{}
	}
	gateway, _ := netip.ParseAddr(*pool.Spec.Gateway) // the CRD refuses an invalid one
	return gateway
}
