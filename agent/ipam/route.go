// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/poolset"
)

// podRoutes is the routes that a pod's annotations name, for all its interfaces.
type podRoutes struct {
	at    annotation
	asked []poolset.Route
	// here is true if the gateways of this interface's pools are default routes.
	here bool
}

// readRoutes reads the annotations routes and default-route-nic.
func (s said) readRoutes(req Request) (podRoutes, error) {
	r := podRoutes{}
	var err error
	if r.here, err = s.defaultHere(req); err != nil {
		return podRoutes{}, err
	}
	var ok bool
	r.at, ok = find(req.Pod.describe(), req.Pod.Annotations, `[{"dst": "10.0.0.0/16", "gw": "192.168.1.1"}]`, annotationRoutes)
	if !ok {
		return r, nil
	}
	var entries []v1alpha1.Route
	if err := r.at.decode(&entries); err != nil {
		return podRoutes{}, err
	}
	if len(entries) > demand.MaxEntries {
		return podRoutes{}, r.at.wrong("it has %d entries, more than %d", len(entries), demand.MaxEntries)
	}
	for i, e := range entries {
		route, err := poolset.ParseRoute(e)
		switch {
		case err != nil:
			return podRoutes{}, r.at.wrong("entry %d: %w", i, err)
		case !route.Gateway.IsValid():
			return podRoutes{}, r.at.wrong("entry %d has no gw", i)
		case slices.ContainsFunc(r.asked, func(other poolset.Route) bool { return other.Dst == route.Dst }):
			return podRoutes{}, r.at.wrong("%s is named twice", route.Dst)
		}
		r.asked = append(r.asked, route)
	}
	return r, nil
}

// defaultHere reports whether the pod's default routes go through this interface. They go through the
// interface that default-route-nic names, else through the first interface without cleangateway. Two
// default routes of one family would break the pod.
func (s said) defaultHere(req Request) (bool, error) {
	a, ok := find(req.Pod.describe(), req.Pod.Annotations, FirstInterface, annotationDefaultRoute)
	if ok {
		if a.value == "" {
			return false, a.wrong("it names no interface")
		}
		return a.value == req.Interface && !s.clean(s.at, req), s.know(a, req, a.value)
	}
	if s.clean(s.at, req) {
		return false, nil
	}
	for i := range s.at {
		if !s.clean(i, req) {
			return false, nil
		}
	}
	return true, nil
}

// DefaultRouteInterface returns the interface that the annotation default-route-nic names, or "".
func DefaultRouteInterface(p Pod) string {
	a, _ := find(p.describe(), p.Annotations, FirstInterface, annotationDefaultRoute)
	return a.value
}

// route sets the routes of the interface. A route of the pod's annotation belongs to the first interface
// that has the next hop in the subnet of an address, so pools with another subnet are rejected. A route
// that belongs to no interface is an error.
func (c chooser) route(choice *Choice) error {
	for i := range choice.Families {
		f := &choice.Families[i]
		f.Default = c.said.routes.here && !slices.ContainsFunc(c.said.routes.asked, func(r poolset.Route) bool {
			return r.Dst.Bits() == 0 && r.Gateway.Is6() == f.IPv6
		})
	}
	for _, r := range c.said.routes.asked {
		if c.reachedEarlier(r.Gateway) {
			continue
		}
		f := choice.family(r.Gateway.Is6())
		if f != nil && f.narrow(r, c.said.routes.at) {
			continue
		}
		if !c.said.last() {
			continue
		}
		if f == nil {
			return c.said.routes.at.wrong("gw %s: %s gets no address of this family", r.Gateway, c.req.Describe())
		}
		return c.said.routes.at.wrong("gw %s is outside the subnets of the pools %s of %s", r.Gateway, poolNames(f.Pools), c.req.Describe())
	}
	return nil
}

// narrow adds a route to the family, and rejects the pools whose subnets do not have its next hop. It
// returns false, and changes nothing, if no pool has it.
func (f *Family) narrow(r poolset.Route, at annotation) bool {
	narrowed, err := f.Without(func(c Candidate) (*Rejection, error) {
		if poolset.Reaches(c.Subnet, r.Gateway) {
			return nil, nil
		}
		return &Rejection{c.Pool.Name, NoNextHop,
			fmt.Sprintf("its subnet %s does not have gw %s of annotation %s", c.Subnet, r.Gateway, at.key)}, nil
	})
	if err != nil {
		return false
	}
	narrowed.Routes = append(narrowed.Routes, r)
	*f = narrowed
	return true
}

// reachedEarlier reports whether an interface before this one has the next hop in a subnet.
func (c chooser) reachedEarlier(gw netip.Addr) bool {
	for _, other := range c.req.Earlier {
		if slices.ContainsFunc(other.Subnets, func(p netip.Prefix) bool { return poolset.Reaches(p, gw) }) {
			return true
		}
	}
	return false
}

// RoutesThrough returns the routes of the interface for the pool that was chosen: the default route,
// the routes of the pool, and the routes of the pod's annotation. A route of the pod replaces the
// pool's route with the same dst. The error names the routes that cannot be read.
func (f *Family) RoutesThrough(pool *v1alpha1.IPPool) ([]poolset.Route, error) {
	subnet, err := poolset.Subnet(pool)
	if err != nil {
		return nil, err
	}
	ofPool, err := poolset.Routes(pool, subnet)
	if err != nil {
		return nil, err
	}
	var routes []poolset.Route
	if f.Default && pool.Spec.Gateway != nil {
		routes = append(routes, poolset.Route{Dst: netip.PrefixFrom(unspecified(f.IPv6), 0)})
	}
	for _, r := range ofPool {
		sameDst := func(other poolset.Route) bool { return other.Dst == r.Dst }
		if r.Dst.Bits() == 0 && !f.Default || slices.ContainsFunc(routes, sameDst) || slices.ContainsFunc(f.Routes, sameDst) {
			continue
		}
		routes = append(routes, r)
	}
	return append(routes, f.Routes...), nil
}

// WithConfigured returns routes, which RoutesThrough has returned, with those of the CNI configuration.
// A route of the pool or of the pod's annotation takes precedence over one with the same dst. A default
// route counts only on the interface that has the pod's default route.
func (f *Family) WithConfigured(routes, configured []poolset.Route) []poolset.Route {
	for _, r := range configured {
		sameDst := func(other poolset.Route) bool { return other.Dst == r.Dst }
		if r.Dst.Addr().Is6() != f.IPv6 || r.Dst.Bits() == 0 && !f.Default || slices.ContainsFunc(routes, sameDst) {
			continue
		}
		routes = append(routes, r)
	}
	return routes
}

func unspecified(ipv6 bool) netip.Addr {
	if ipv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
