// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/agent/holder/win"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/poolset"
)

// answer returns the addresses with their gateways, and the routes, for the runtime to configure.
func answer(choice ipam.Choice, bound []win.Bound, n agentapi.Network) (*agentapi.AddResponse, error) {
	var r agentapi.AddResponse
	for i, b := range bound {
		subnet, err := poolset.Subnet(b.Pool)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", b.Pool.Name, err)
		}
		r.IPs = append(r.IPs, agentapi.IP{Address: netip.PrefixFrom(b.Address.Addr, subnet.Bits()), Gateway: b.Pool.Gateway()})
		// Addresses are bound in the order of the families.
		routes, err := win.RoutesThrough(&choice.Families[i], b.Pool, n)
		if err != nil {
			return nil, err
		}
		for _, route := range routes {
			r.Routes = append(r.Routes, agentapi.Route{Dst: route.Dst, GW: route.Gateway})
		}
	}
	return &r, nil
}
