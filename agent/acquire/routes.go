// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/poolset"
)

// checkRoutes rejects a pool if a route that comes with an address of the pool diverts packets from
// their proper path. It runs before an address is leased.
func (a *Try) checkRoutes(ctx context.Context, f ipam.Family, pool *v1alpha1.IPPool) outcome {
	if !pool.ChecksRoutes() {
		return outcome{}
	}
	routes, err := RoutesThrough(&f, pool, a.Request.Network)
	if err != nil {
		return ends(err)
	}
	if !slices.ContainsFunc(routes, func(r poolset.Route) bool { return r.Dst.Bits() != 0 }) {
		return outcome{} // default routes divert nothing
	}
	subnet, err := poolset.Subnet(pool)
	if err != nil {
		return ends(err)
	}
	own, err := a.h.NodeSubnets()
	if err != nil {
		return ends(err)
	}
	a.h.AwaitServices(ctx)
	h, hijacked := ipam.Hijacked(routes,
		ipam.Uplink{Subnet: subnet, Gateway: pool.Spec.Gateway != nil, Default: f.Default && !a.Request.Network.CleanGateway},
		ipam.Nearby{Services: a.h.Services(), Node: own})
	if !hijacked {
		return outcome{}
	}
	return ends(refusal.New(refusal.InvalidPod,
		"%s of pod %s/%s: %s, and it comes from %s; remove or change the route, or set spec.routeCheck of pool %s to false",
		a.Who.Interface, a.Who.Namespace, a.Who.Pod, h, originOf(h.Route, f, pool, a.Request.Network), pool.Name))
}

// originOf names the place that configures a route.
func originOf(r poolset.Route, f ipam.Family, pool *v1alpha1.IPPool, n agentapi.Network) string {
	switch {
	case slices.Contains(f.Routes, r):
		return "the annotation routes of the pod"
	case slices.ContainsFunc(pool.Spec.Routes, func(p v1alpha1.Route) bool { return p.Dst == r.Dst.String() }):
		return "spec.routes of pool " + pool.Name
	}
	return "ipam.routes of network " + n.Name
}

// RoutesThrough returns the routes of an interface with an address of a pool.
func RoutesThrough(of *ipam.Family, pool *v1alpha1.IPPool, n agentapi.Network) ([]poolset.Route, error) {
	family := *of
	family.Default = family.Default && !n.CleanGateway
	routes, err := family.RoutesThrough(pool)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", pool.Name, err)
	}
	var configured []poolset.Route
	for _, r := range n.Routes {
		configured = append(configured, poolset.Route{Dst: r.Dst, Gateway: r.GW})
	}
	return family.WithConfigured(routes, configured), nil
}
