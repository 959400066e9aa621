// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Route is one route of a pod. A route without a gateway uses the gateway of the pod's address of
// the same family. If that address has no gateway, the route is on link.
type Route struct {
	Dst     netip.Prefix
	Gateway netip.Addr
}

// ParseRoute reads a route of a pool or of an annotation.
func ParseRoute(r v1alpha1.Route) (Route, error) {
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

// Reaches reports whether an interface with an address of the subnet reaches a gateway without
// another route.
func Reaches(subnet netip.Prefix, gw netip.Addr) bool {
	return subnet.Contains(gw) || gw.Is6() && gw.IsLinkLocalUnicast() && subnet.Addr().Is6()
}

// Routes returns the routes of a pool with the given subnet. The error joins a SpecError for each
// route that cannot be used; the result has the others.
func Routes(pool *v1alpha1.IPPool, subnet netip.Prefix) ([]Route, error) {
	var routes []Route
	var errs []error
	for i, r := range pool.Spec.Routes {
		route, err := ParseRoute(r)
		if err == nil && route.Dst.Addr().BitLen() != subnet.Addr().BitLen() {
			err = fmt.Errorf("dst %s is not of the family of the subnet %s", route.Dst, subnet)
		}
		// The kernel refuses such a route, and the plugin that sets the route then fails the whole
		// pod.
		if err == nil && route.Gateway.IsValid() && !Reaches(subnet, route.Gateway) {
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
