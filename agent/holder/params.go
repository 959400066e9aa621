// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/poolset"
)

// answer returns the addresses with their gateways, and the routes, for the runtime to configure.
func answer(choice ipam.Choice, bound []boundAddress, n agentapi.Network) (*agentapi.AddResponse, error) {
	var r agentapi.AddResponse
	for i, b := range bound {
		subnet, err := poolset.Subnet(b.pool)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", b.pool.Name, err)
		}
		ip := agentapi.IP{Address: netip.PrefixFrom(b.address.Addr, subnet.Bits())}
		if b.pool.Spec.Gateway != nil {
			if ip.Gateway, err = netip.ParseAddr(*b.pool.Spec.Gateway); err != nil {
				return nil, fmt.Errorf("gateway of pool %s: %w", b.pool.Name, err)
			}
		}
		r.IPs = append(r.IPs, ip)
		// Addresses are bound in the order of the families.
		routes, err := routesThrough(&choice.Families[i], b.pool, n)
		if err != nil {
			return nil, err
		}
		for _, route := range routes {
			r.Routes = append(r.Routes, agentapi.Route{Dst: route.Dst, GW: route.Gateway})
		}
	}
	return &r, nil
}

// routesThrough returns the routes of an interface with an address of a pool.
func routesThrough(of *ipam.Family, pool *v1alpha1.IPPool, n agentapi.Network) ([]poolset.Route, error) {
	family := *of
	family.Default = family.Default && !n.CleanGateway
	routes, err := family.RoutesThrough(pool)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", pool.Name, err)
	}
	return family.WithConfigured(routes, configuredRoutes(n)), nil
}

// configuredRoutes returns the routes of a CNI configuration.
func configuredRoutes(n agentapi.Network) []poolset.Route {
	var routes []poolset.Route
	for _, r := range n.Routes {
		routes = append(routes, poolset.Route{Dst: r.Dst, Gateway: r.GW})
	}
	return routes
}
