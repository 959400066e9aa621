// SPDX-License-Identifier: Apache-2.0

package poolset

import "testing"

func TestRoutesOfAPoolThatCannotBeUsed(t *testing.T) {
	for rule, c := range map[string]struct{ route, want string }{
		"a dst that is no CIDR":   {"10.8.0.0", `spec.routes[1]: dst: "10.8.0.0" is not a CIDR`},
		"a gw that is no address": {"10.8.0.0/16 router", `spec.routes[1]: gw: "router" is not an IP address`},
		"the other family":        {"fd08::/16 fd00::1", "spec.routes[1]: dst fd08::/16 is not of the family of the subnet 10.0.0.0/24"},
		"a gw out of reach":       {"10.8.0.0/16 10.1.0.2", "spec.routes[1]: gw 10.1.0.2 is not inside the subnet 10.0.0.0/24"},
	} {
		t.Run(rule, func(t *testing.T) {
			p := v4("a").routed("10.9.0.0/16 10.0.0.2", c.route)
			if _, err := Validate(p.object()); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestARouteOfAPoolMayGoThroughALinkLocalAddress(t *testing.T) {
	if _, err := Validate(v6("six").routed("fd08::/16 fe80::1").object()); err != nil {
		t.Error(err)
	}
}
