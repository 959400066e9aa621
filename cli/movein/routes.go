// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/internal/poolset"
)

// routesFor returns the routes of a definition for whereabouts: its own and those of its pools, which replace one with
// the same destination. Default routes of pools are those of routing tables that it does not make, so they are left out.
// A route has a gateway of its own, because whereabouts knows one gateway, of one family.
func routesFor(ranges []leaving, own []any) (all []any) {
	byPools := map[netip.Prefix]bool{}
	for _, r := range ranges {
		for _, route := range r.pool.Spec.Routes {
			to, err := poolset.ParseRoute(route)
			if err != nil || to.Dst.Bits() == 0 {
				continue
			}
			byPools[to.Dst] = true
			one := map[string]any{"dst": to.Dst.String()}
			if to.Gateway.IsValid() {
				one["gw"] = to.Gateway.String()
			}
			all = append(all, one)
		}
	}
	for _, each := range own {
		one, _ := each.(map[string]any)
		if to, err := netip.ParsePrefix(fmt.Sprint(one["dst"])); err != nil || !byPools[to.Masked()] {
			all = append(all, each)
		}
	}
	for _, each := range all {
		one, _ := each.(map[string]any)
		to, err := netip.ParsePrefix(fmt.Sprint(one["dst"]))
		for _, r := range ranges {
			gateway := r.pool.Gateway()
			if hasNone := one["gw"] == nil || one["gw"] == ""; err == nil && hasNone && gateway.IsValid() && gateway.Is4() == to.Addr().Is4() {
				one["gw"] = gateway.String()
			}
		}
	}
	return all
}
