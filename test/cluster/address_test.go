// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestNodesHaveAnAddressOfEachFamilyInTheirNetwork(t *testing.T) {
	management := netip.MustParsePrefix("172.30.7.0/24")
	for name, tc := range map[string]struct {
		options Options
		want    []string
	}{
		"IPv4":                       {Options{Management: management}, []string{"172.30.7.12/24"}},
		"dual stack":                 {Options{Management: management, DualStack: true}, []string{"172.30.7.12/24", "fd30:7::c/64"}},
		"IPv4 on the underlay":       {Options{Management: management, SingleNIC: true, Gateways: Gateways()}, []string{"10.78.0.12/16"}},
		"dual stack on the underlay": {Options{Management: management, SingleNIC: true, Gateways: Gateways(), DualStack: true}, []string{"10.78.0.12/16", "fd78::c/64"}},
	} {
		var want []netip.Prefix
		for _, text := range tc.want {
			want = append(want, netip.MustParsePrefix(text))
		}
		if diff := cmp.Diff(want, tc.options.nodeAddresses(2), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestTheNameServerOfPodsIsTheTenthClusterIP(t *testing.T) {
	o := Options{DualStack: true}
	want := []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd96::a")}
	if diff := cmp.Diff(want, o.nameServers(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}

func TestOptionsThatContradictEachOtherAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"an unknown mode of kube-proxy": {KubeProxy: "ipvs"},
		"a single interface, no router": {SingleNIC: true},
	} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
