// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fenceline/fenceline/test/check"
)

func TestNodesHaveAnAddressOfEachFamilyInTheirNetwork(t *testing.T) {
	management := netip.MustParsePrefix("172.30.7.0/24")
	for name, tc := range map[string]struct {
		options Options
		want    []string
	}{
		"IPv4":                       {Options{Management: management}, []string{"172.30.7.12/24"}},
		"dual stack":                 {Options{Management: management, DualStack: true}, []string{"172.30.7.12/24", "fd30:7::c/64"}},
		"IPv6":                       {Options{Management: management, IPv6Only: true}, []string{"fd30:7::c/64"}},
		"IPv4 on the underlay":       {Options{Management: management, SingleNIC: true, Gateways: Gateways()}, []string{"10.78.0.12/16"}},
		"dual stack on the underlay": {Options{Management: management, SingleNIC: true, Gateways: Gateways(), DualStack: true}, []string{"10.78.0.12/16", "fd78::c/64"}},
	} {
		var want []netip.Prefix
		for _, text := range tc.want {
			want = append(want, netip.MustParsePrefix(text))
		}
		check.SameBy(t, cmp.Options{cmpopts.EquateComparable(netip.Prefix{})}, tc.options.nodeAddresses(2), want, "%s", name)
	}
}

func TestTheNameServerOfPodsIsTheTenthClusterIP(t *testing.T) {
	o := Options{DualStack: true}
	want := []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd96::a")}
	check.SameBy(t, cmp.Options{cmpopts.EquateComparable(netip.Addr{})}, o.nameServers(), want, "the value")
}

func TestOptionsThatContradictEachOtherAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"an unknown mode of kube-proxy": {KubeProxy: "ipvs"},
		"a single interface, no router": {SingleNIC: true},
	} {
		_, err := o.withDefaults()
		check.That(t, err != nil, "%s: accepted", name)
	}
}

func TestTheRouterHasTheGatewaysThatTheDocumentsName(t *testing.T) {
	files := append(check.Value(filepath.Glob("../../examples/*.yaml"))(t), "../../docs/start.md")
	want := map[string]bool{}
	subnets := map[string]bool{}
	for _, file := range files {
		text := check.Value(os.ReadFile(file))(t)
		for _, m := range regexp.MustCompile(`\b(gateway|gw|subnet): "?([0-9a-f.:/]+)`).FindAllSubmatch(text, -1) {
			if string(m[1]) == "subnet" {
				subnets[string(m[2])] = true
			} else {
				want[string(m[2])] = true
			}
		}
	}
	got := map[string]bool{}
	for _, g := range documentedGateways() {
		got[g.Addr().String()] = true
		check.That(t, subnets[g.Masked().String()], "no document names the subnet of %s", g)
	}
	check.Same(t, got, want, "gateways of the documents (-) and of the router (+)")
}
