// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestAddressesWithTheSameMAC(t *testing.T) {
	policy := &v1alpha1.MACPolicy{Type: v1alpha1.MACFromIP, Prefix: "0a:58"}
	pool := func(name, subnet string, change func(*v1alpha1.IPPoolSpec), ips ...string) v1alpha1.IPPool {
		p := v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Subnet: subnet, IPs: ips, MACPolicy: policy}}
		p.Name = name
		if change != nil {
			change(&p.Spec)
		}
		return p
	}
	vlan := int64(7)
	for name, row := range map[string]struct {
		pool   v1alpha1.IPPool
		addr   string
		others []v1alpha1.IPPool
		want   string
	}{
		"of a pool of one /96":                {pool("a", "fd00::/96", nil), "fd00::5", nil, ""},
		"of a pool that is a /64":             {pool("a", "fd00::/64", nil), "fd00::5", nil, "fd00::1:0:5"},
		"of a pool that is a /64, from above": {pool("a", "fd00::/64", nil), "fd00::7:0:5", nil, "fd00::5"},
		"of two ranges":                       {pool("a", "fd00::/64", nil, "fd00::5", "fd00::1:0:1-fd00::1:0:9"), "fd00::5", nil, "fd00::1:0:5"},
		"of two ranges that end differently":  {pool("a", "fd00::/64", nil, "fd00::5", "fd00::1:0:6-fd00::1:0:9"), "fd00::5", nil, ""},
		"of an IPv4 address":                  {pool("a", "10.0.0.0/24", nil), "10.0.0.5", []v1alpha1.IPPool{pool("b", "fd00::/64", nil)}, ""},
		"of another pool": {pool("a", "fd00::/96", nil), "fd00::5",
			[]v1alpha1.IPPool{pool("b", "fd00:1::/96", nil)}, "fd00:1::5"},
		"of an IPv4 pool": {pool("a", "fd00::/96", nil), "fd00::a00:5",
			[]v1alpha1.IPPool{pool("b", "10.0.0.0/24", nil)}, "10.0.0.5"},
		"of a pool of another VLAN": {pool("a", "fd00::/96", nil), "fd00::5",
			[]v1alpha1.IPPool{pool("b", "fd00:1::/96", func(s *v1alpha1.IPPoolSpec) { s.Vlan = &vlan })}, ""},
		"of a pool of another network": {pool("a", "fd00::/96", nil), "fd00::5",
			[]v1alpha1.IPPool{pool("b", "fd00:1::/96", func(s *v1alpha1.IPPoolSpec) { s.Network = "lab" })}, ""},
		"of a pool with another prefix": {pool("a", "fd00::/96", nil), "fd00::5", []v1alpha1.IPPool{pool("b", "fd00:1::/96", func(s *v1alpha1.IPPoolSpec) {
			s.MACPolicy = &v1alpha1.MACPolicy{Type: v1alpha1.MACFromIP, Prefix: "0a:59"}
		})}, ""},
		"of a pool without a policy": {pool("a", "fd00::/96", nil), "fd00::5",
			[]v1alpha1.IPPool{pool("b", "fd00:1::/96", func(s *v1alpha1.IPPoolSpec) { s.MACPolicy = nil })}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			other, _, ok := SameMAC(&row.pool, netip.MustParseAddr(row.addr), append(row.others, row.pool))
			if ok != (row.want != "") || ok && other.String() != row.want {
				t.Errorf("%s, %t, want %q", other, ok, row.want)
			}
		})
	}
}
