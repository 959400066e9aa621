package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Route is one route of a pod. Without a gateway it goes through that of the
// address of its family, or is on link where there is none.
type Route struct {
	Dst     netip.Prefix
	Gateway netip.Addr
}

// podRoutes is what a pod says about its routes, for all its interfaces.
type podRoutes struct {
	at    annotation
	asked []Route
	// here tells whether the gateways of this interface's pools are default routes.
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
	r.at, ok = find(req.Pod.describe(), req.Pod.Annotations,
		`[{"dst": "10.0.0.0/16", "gw": "192.168.1.1"}]`, annotationRoutes)
	if !ok {
		return r, nil
	}
	var entries []v1alpha1.Route
	if err := r.at.decode(&entries); err != nil {
		return podRoutes{}, err
	}
	if len(entries) > maxEntries {
		return podRoutes{}, r.at.wrong("it has %d entries, more than %d", len(entries), maxEntries)
	}
	for i, e := range entries {
		route, err := parseRoute(e)
		switch {
		case err != nil:
			return podRoutes{}, r.at.wrong("entry %d: %w", i, err)
		case !route.Gateway.IsValid():
			return podRoutes{}, r.at.wrong("entry %d has no gw", i)
		case slices.ContainsFunc(r.asked, func(other Route) bool { return other.Dst == route.Dst }):
			return podRoutes{}, r.at.wrong("%s is named twice", route.Dst)
		}
		r.asked = append(r.asked, route)
	}
	return r, nil
}

// defaultHere tells whether the pod's default routes go through this
// interface: the one that default-route-nic names, or else the first of the
// pod's interfaces that does not ask for a clean gateway. Two default routes of
// one family would break the pod.
func (s said) defaultHere(req Request) (bool, error) {
	a, ok := find(req.Pod.describe(), req.Pod.Annotations, firstInterface, annotationDefaultRoute)
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

// parseRoute reads a route of a pool or of the annotation.
func parseRoute(r v1alpha1.Route) (Route, error) {
	dst, err := parsePrefix(r.Dst)
	if err != nil {
		return Route{}, fmt.Errorf("dst: %w", err)
	}
	route := Route{Dst: dst}
	if r.Gw == "" {
		return route, nil
	}
	if route.Gateway, err = parseAddr(r.Gw); err != nil {
		return Route{}, fmt.Errorf("gw: %w", err)
	}
	if route.Gateway.BitLen() != dst.Addr().BitLen() {
		return Route{}, fmt.Errorf("gw %s is not of the family of dst %s", route.Gateway, dst)
	}
	return route, nil
}

// route gives the interface its routes. Each one that the pod asks for belongs
// to the first interface that has the gateway in the subnet of an address, so
// pools of another subnet cannot serve. Nothing is chosen where a route would
// belong to no interface.
func (c chooser) route(choice *Choice) error {
	for i := range choice.Families {
		f := &choice.Families[i]
		f.Default = c.said.routes.here && !slices.ContainsFunc(c.said.routes.asked, func(r Route) bool {
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
			return c.said.routes.at.wrong("gw %s: %s gets no address of this family", r.Gateway, c.req.describe())
		}
		return c.said.routes.at.wrong("gw %s is in the subnet of none of the pools %s of %s", r.Gateway, poolNames(f.Pools), c.req.describe())
	}
	return nil
}

// narrow gives a route to the family, and rules the pools out through whose
// subnets its gateway cannot be reached. It is false when that would be all.
func (f *Family) narrow(r Route, at annotation) bool {
	var reach []Candidate
	var rejected []Rejection
	for _, c := range f.Pools {
		if reaches(c.Subnet, r.Gateway) {
			reach = append(reach, c)
			continue
		}
		rejected = append(rejected, Rejection{c.Pool.Name, NoNextHop,
			fmt.Sprintf("its subnet %s does not have gw %s of annotation %s", c.Subnet, r.Gateway, at.key)})
	}
	if len(reach) == 0 {
		return false
	}
	f.Pools, f.Rejected, f.Routes = reach, append(f.Rejected, rejected...), append(f.Routes, r)
	return true
}

// reachedEarlier tells whether an interface before this one has the gateway.
func (c chooser) reachedEarlier(gw netip.Addr) bool {
	for _, other := range c.req.Earlier {
		if slices.ContainsFunc(other.Subnets, func(p netip.Prefix) bool { return reaches(p, gw) }) {
			return true
		}
	}
	return false
}

// reaches tells whether an interface with an address of the subnet reaches a
// gateway without another route.
func reaches(subnet netip.Prefix, gw netip.Addr) bool {
	return subnet.Contains(gw) || gw.Is6() && gw.IsLinkLocalUnicast() && subnet.Addr().Is6()
}

// RoutesThrough returns the routes of the interface once the pool of the
// family is known: the default route, those of the pool, and those that the pod
// asks for, which replace the pool's. The error names what cannot be read.
func (f *Family) RoutesThrough(pool *v1alpha1.IPPool) ([]Route, error) {
	subnet, err := Subnet(pool)
	if err != nil {
		return nil, err
	}
	ofPool, err := poolRoutes(pool, subnet)
	if err != nil {
		return nil, err
	}
	var routes []Route
	if f.Default && pool.Spec.Gateway != nil {
		routes = append(routes, Route{Dst: netip.PrefixFrom(unspecified(f.IPv6), 0)})
	}
	for _, r := range ofPool {
		sameDst := func(other Route) bool { return other.Dst == r.Dst }
		if r.Dst.Bits() == 0 && !f.Default || slices.ContainsFunc(routes, sameDst) || slices.ContainsFunc(f.Routes, sameDst) {
			continue
		}
		routes = append(routes, r)
	}
	return append(routes, f.Routes...), nil
}

// poolRoutes reads the routes of a pool. The error joins a SpecError for each
// that cannot be used.
func poolRoutes(pool *v1alpha1.IPPool, subnet netip.Prefix) ([]Route, error) {
	var routes []Route
	var errs []error
	for i, r := range pool.Spec.Routes {
		route, err := parseRoute(r)
		if err == nil && route.Dst.Addr().BitLen() != subnet.Addr().BitLen() {
			err = fmt.Errorf("dst %s is not of the family of the subnet %s", route.Dst, subnet)
		}
		// The kernel refuses such a route, and the plugin that sets it the whole pod.
		if err == nil && route.Gateway.IsValid() && !reaches(subnet, route.Gateway) {
			err = fmt.Errorf("gw %s is not inside the subnet %s", route.Gateway, subnet)
		}
		if err != nil {
			errs = append(errs, &SpecError{fmt.Sprintf("spec.routes[%d]", i), err})
			continue
		}
		routes = append(routes, route)
	}
	return routes, errors.Join(errs...)
}

func unspecified(ipv6 bool) netip.Addr {
	if ipv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
