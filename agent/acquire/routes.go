// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/poolset"
)

// routed finds the routes that come with an address of the pool, and begins to ask for its gateway. It
// runs before an address is leased.
func (t *try) routed(ctx context.Context) outcome {
	subnet, err := poolset.Subnet(t.pool)
	if err != nil {
		return ends(fmt.Errorf("pool %s: %w", t.pool.Name, err))
	}
	routes, err := routesThrough(t.s.family, t.pool, t.d.Call.Network)
	if err != nil {
		return ends(err)
	}
	if o := t.diverted(ctx, routes, subnet); o.result != won {
		return o
	}
	var given []agentapi.Route
	for _, r := range routes {
		given = append(given, agentapi.Route{Dst: r.Dst, GW: r.Gateway})
	}
	t.address.Given = attachment.GivenBy(t.pool, netip.PrefixFrom(t.address.Addr, subnet.Bits()), given)
	t.gateway = t.d.askGateway(ctx, t.pool)
	return outcome{}
}

// diverted rejects the pool if a route diverts packets from their proper path.
func (t *try) diverted(ctx context.Context, routes []poolset.Route, subnet netip.Prefix) outcome {
	network := t.d.Call.Network
	if !t.pool.ChecksRoutes() || !slices.ContainsFunc(routes, func(r poolset.Route) bool { return r.Dst.Bits() != 0 }) {
		return outcome{} // default routes divert nothing
	}
	own, err := t.a.NodeSubnets()
	if err != nil {
		return ends(err)
	}
	h, hijacked := ipam.Hijacked(routes,
		ipam.Uplink{Subnet: subnet, Gateway: t.pool.Spec.Gateway != nil, Default: t.s.family.Default && !network.CleanGateway},
		ipam.Nearby{Services: t.a.Services(ctx), Node: own})
	if !hijacked {
		return outcome{}
	}
	return outcome{poolRejected, refusal.New(refusal.InvalidPod,
		"%s of pod %s/%s: %s, and it comes from %s; remove or change the route, or set spec.routeCheck of pool %s to false",
		t.i.who.Interface, t.i.who.Namespace, t.i.who.Pod, h, originOf(h.Route, t.s.family, t.pool, network), t.pool.Name)}
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

// routesThrough returns the routes of an interface with an address of a pool.
func routesThrough(family ipam.Family, pool *v1alpha1.IPPool, n agentapi.Network) ([]poolset.Route, error) {
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
