// SPDX-License-Identifier: Apache-2.0

package poolset

import "testing"

func TestWhyAPoolHandsOutNothing(t *testing.T) {
	for name, c := range map[string]struct {
		pool     *poolOf
		reserved Set
		want     Reason
	}{
		"it hands out addresses":            {v4("a").disabled(false), setOf(t, "10.0.0.9"), ""},
		"it is deleted, and disabled too":   {v4("a").deleting().disabled(true), Set{}, Deleting},
		"it is disabled, and invalid too":   {v4("a").disabled(true).ips("x"), Set{}, Disabled},
		"it is invalid":                     {v4("a").ips("x"), Set{}, Invalid},
		"a route is invalid":                {v4("a").routed("10.8.0.0"), Set{}, Invalid},
		"all is excluded, and reserved too": {v4("a").without("10.0.0.0/24"), setOf(t, "10.0.0.0/24"), AllExcluded},
		"what is left is reserved":          {v4("a").without("10.0.0.0/25"), setOf(t, "10.0.0.128/25"), AllReserved},
	} {
		t.Run(name, func(t *testing.T) {
			all, _ := Addresses(c.pool.object())
			_, problem := Validate(c.pool.object())
			if got := Closed(c.pool.object(), problem, all, all, all.Minus(c.reserved)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
