// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestRequestedAddresses(t *testing.T) {
	pools := objects(
		v4("a").ips("10.0.0.10-10.0.0.19").gateway("10.0.0.1").without("10.0.0.15"),
		v4("b").ips("10.0.0.15-10.0.0.29"),
		v6("c"),
		v4("off").disabled(),
		v4("unasked").ips("10.0.0.50-10.0.0.59").unasked(),
	)
	both := inConfig([]string{"a", "b"}, []string{"c"})
	runs := []struct {
		rule    string
		request Request
		want    string // the pools, or the error
	}{
		{"narrows its family to the pool that holds it", requestOf(both, asking("10.0.0.25")), "v4: b; v6: c"},
		{"the first pool that may hand it out serves", requestOf(both, asking("10.0.0.12")), "v4: a; v6: c"},
		{"a pool that excludes it does not stop the next", requestOf(both, asking("10.0.0.15")), "v4: b; v6: c"},
		{"one of each family", requestOf(both, asking("fd00::9", "10.0.0.12")), "v4: a; v6: c"},
		{"the gateway", requestOf(both, asking("10.0.0.1")),
			"requested address 10.0.0.1 for pod shop/web-0 interface eth0: it is the gateway of pool a"},
		{"the broadcast address", requestOf(both, asking("10.0.0.255")),
			"requested address 10.0.0.255 for pod shop/web-0 interface eth0: no host may have this address of the subnet 10.0.0.0/24"},
		{"excluded", requestOf(inConfig([]string{"a"}, nil), asking("10.0.0.15")),
			"requested address 10.0.0.15 for pod shop/web-0 interface eth0: it is excluded from pool a"},
		{"reserved", requestOf(both, asking("10.0.0.19")),
			"requested address 10.0.0.19 for pod shop/web-0 interface eth0: it is reserved"},
		{"inside the subnet but outside of ips", requestOf(both, asking("10.0.0.40")),
			"requested address 10.0.0.40 for pod shop/web-0 interface eth0: it is outside of the ips of pool a"},
		{"outside of every subnet", requestOf(both, asking("10.9.0.1")),
			"requested address 10.9.0.1 for pod shop/web-0 interface eth0: it is outside of the pools [a b]"},
		{"kept for the pod, though it is reserved now", requestOf(both, asking("10.0.0.19"), keeping("10.0.0.19", "a")), "v4: a; v6: c"},
		{"kept for the pod by a pool that is no longer named", requestOf(inConfig([]string{"a"}, nil), asking("10.0.0.19"), keeping("10.0.0.19", "b")), "v4: b"},
		{"kept for the pod by a pool that does not exist", requestOf(inConfig([]string{"a"}, nil), asking("10.0.0.19"), keeping("10.0.0.19", "z")),
			"requested address 10.0.0.19 for pod shop/web-0 interface eth0: it is reserved"},
		{"in a pool that is closed but for what it keeps", requestOf(inConfig([]string{"off"}, nil), asking("10.0.0.8"), keeping("10.0.0.7", "off")),
			"requested address 10.0.0.8 for pod shop/web-0 interface eth0: pool off: it is disabled"},
		{"in a pool that takes no requests", requestOf(inConfig([]string{"unasked"}, nil), asking("10.0.0.52")),
			"requested address 10.0.0.52 for pod shop/web-0 interface eth0: pool unasked takes no requests for an address (ipRequests: false)"},
		{"in the second pool of the subnet, which takes no requests", requestOf(inConfig([]string{"a", "unasked"}, nil), asking("10.0.0.52")),
			"requested address 10.0.0.52 for pod shop/web-0 interface eth0: pool unasked takes no requests for an address (ipRequests: false)"},
		{"kept for the pod in a pool that takes no requests", requestOf(inConfig([]string{"unasked"}, nil), asking("10.0.0.52"), keeping("10.0.0.52", "unasked")), "v4: unasked"},
		{"of a family without a pool", requestOf(inConfig([]string{"a"}, nil), asking("fd00::9")),
			"requested address fd00::9 for pod shop/web-0 interface eth0: no pool of its family is chosen"},
		{"two of one family", requestOf(both, asking("10.0.0.11", "10.0.0.12")),
			"requested address 10.0.0.12 for pod shop/web-0 interface eth0: 10.0.0.11 is requested as well, an interface gets one address of a family"},
	}
	for _, c := range runs {
		t.Run(c.rule, func(t *testing.T) {
			got, err := ChoosePools(c.request, pools, setOf(t, "10.0.0.19"))
			if err == nil {
				check.Equal(t, names(got), c.want, "got")
				for _, f := range got.Families {
					if f.Requested.IsValid() && (len(f.Pools) != 1 || !f.Pools[0].Set.Contains(f.Requested) && len(c.request.Kept) == 0) {
						t.Errorf("%s is not in %v", f.Requested, f.Pools)
					}
				}
				return
			}
			wrong := (*RequestedError)(nil)
			check.That(t, errors.As(err, &wrong) && err.Error() == c.want, "got  %v\nwant %s", err, c.want)
		})
	}
}
