// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestGrids(t *testing.T) {
	with := func(p *v1alpha1.IPPool, edit func(*v1alpha1.IPPoolSpec)) *v1alpha1.IPPool {
		edit(&p.Spec)
		return p
	}
	gateway := "10.0.0.1"
	withheld := poolNamed("underlay", "10.0.0.0/29")
	withheld.Status.Withheld = []v1alpha1.Withheld{{Pool: "other", IPs: []string{"10.0.0.5-10.0.0.6"}}}
	for name, row := range map[string]struct {
		pool     *v1alpha1.IPPool
		reserved []string
		leases   []string
		want     Grid
	}{
		"a whole subnet": {poolNamed("underlay", "10.0.0.0/24"), nil, nil, Grid{"10.0.0.0", 256, "1-254f1-"}},
		"gateway, excluded and reserved addresses": {with(poolNamed("underlay", "10.0.0.0/24", "10.0.0.1-10.0.0.20"), func(s *v1alpha1.IPPoolSpec) {
			s.Gateway, s.ExcludeIPs = &gateway, []string{"10.0.0.4-10.0.0.5"}
		}), []string{"10.0.0.5-10.0.0.9", "10.0.0.200"}, nil, Grid{"10.0.0.0", 256, "1-1g2f2-4r11f235-"}},
		"addresses that another pool hands out":    {withheld, nil, nil, Grid{"10.0.0.0", 8, "1-4f2w1-"}},
		"a small subnet":                           {poolNamed("underlay", "10.0.0.8/30"), nil, nil, Grid{"10.0.0.8", 4, "1-2f1-"}},
		"a part of a large subnet":                 {poolNamed("underlay", "10.0.0.0/8", "10.9.1.5", "10.9.2.7"), nil, nil, Grid{"10.9.1.0", 512, "5-1f257-1f248-"}},
		"with a lease outside of the pool":         {poolNamed("underlay", "10.0.0.0/8", "10.9.1.5"), nil, []string{"10.9.0.3"}, Grid{"10.9.0.0", 512, "261-1f250-"}},
		"a /16":                                    {poolNamed("underlay", "10.20.0.0/16"), nil, nil, Grid{"10.20.0.0", 65536, "1-65534f1-"}},
		"a /8 is too large":                        {poolNamed("underlay", "10.0.0.0/8"), nil, nil, Grid{}},
		"a /64 is too large":                       {poolNamed("underlay", "fd00::/64"), nil, nil, Grid{}},
		"a part of a /64":                          {poolNamed("underlay", "fd00::/64", "fd00::1:10-fd00::1:1f"), nil, nil, Grid{"fd00::1:0", 256, "16-16f224-"}},
		"the last address of IPv4 has no next one": {poolNamed("underlay", "255.255.255.254/31"), nil, nil, Grid{"255.255.255.254", 2, "2f"}},
		"a pool that cannot be read has none":      {poolNamed("underlay", "10.0.0.0/33"), nil, nil, Grid{}},
		"ips that cannot be read, and a lease":     {poolNamed("underlay", "10.0.0.0/24", "x"), nil, []string{"10.0.0.3"}, Grid{}},
	} {
		t.Run(name, func(t *testing.T) {
			var leases []v1alpha1.IPLease
			for _, address := range row.leases {
				leases = append(leases, *leaseNamed(address, v1alpha1.StateBound, "web-0"))
			}
			row.pool.Status.InUse = "//8=" // all addresses were in use a moment ago
			reserved := v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{IPs: row.reserved}}
			check.Equal(t, GridOf(row.pool, []v1alpha1.ReservedIP{reserved}, leases), row.want, "got")
		})
	}
}

func TestLettersOfLeases(t *testing.T) {
	for want, s := range map[string]v1alpha1.IPLeaseSpec{
		"B": {State: v1alpha1.StateBound, Reason: v1alpha1.ReasonMigrated}, "W": {State: v1alpha1.StateWarm},
		"R": {State: v1alpha1.StateRetained}, "Q": {State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonPodGone},
		"C": {State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonConflict},
	} {
		check.Equal(t, leaseOf(&v1alpha1.IPLease{Spec: s}).State, want, "%s (%s) is", s.State, s.Reason)
	}
}
