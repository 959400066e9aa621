// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/cni/agentapi"
)

func TestDecideRouting(t *testing.T) {
	yes, no := true, false
	underlay := &journal.Routing{First: true, HostLink: true}
	for _, c := range []struct {
		rule         string
		ifname       string
		asked        agentapi.Routing
		first        *journal.Routing
		defaultRoute string
		want         *journal.Routing
	}{
		{"the first interface is the pod's network", "eth0", agentapi.Routing{}, nil, "", &journal.Routing{First: true, HostLink: true}},
		{"auto is the default", "eth0", agentapi.Routing{Mode: agentapi.ModeAuto}, nil, "", &journal.Routing{First: true, HostLink: true}},
		{"another network has eth0", "net1", agentapi.Routing{}, nil, "", &journal.Routing{OwnTable: true}},
		{"a second interface of the underlay", "net1", agentapi.Routing{}, underlay, "", &journal.Routing{OwnTable: true}},
		{"off", "eth0", agentapi.Routing{Mode: agentapi.ModeOff}, nil, "", nil},
		{"off for the second interface only", "net1", agentapi.Routing{Mode: agentapi.ModeOff}, underlay, "", nil},
		{"no host link", "eth0", agentapi.Routing{HostLink: &no}, nil, "", &journal.Routing{First: true}},
		{"a host link for a secondary", "net1", agentapi.Routing{HostLink: &yes}, nil, "", &journal.Routing{HostLink: true, OwnTable: true}},
		{"overlay for eth0", "eth0", agentapi.Routing{Mode: agentapi.ModeOverlay}, nil, "", &journal.Routing{OwnTable: true}},
		{"underlay for a secondary", "net1", agentapi.Routing{Mode: agentapi.ModeUnderlay}, nil, "", &journal.Routing{OwnTable: true}},
		{"default routes on another interface", "eth0", agentapi.Routing{}, nil, "net1", &journal.Routing{First: true, HostLink: true, OwnTable: true}},
		{"default routes here", "eth0", agentapi.Routing{}, nil, "eth0", &journal.Routing{First: true, HostLink: true}},
		{"the underlay has the default routes", "net1", agentapi.Routing{}, nil, "net1", &journal.Routing{OwnTable: true, TakesDefault: true}},
		{"another interface of the underlay has them", "net1", agentapi.Routing{}, underlay, "net1", &journal.Routing{OwnTable: true}},
		{
			"listed destinations and the queue are passed on", "eth0",
			agentapi.Routing{HostLinkCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, TxQueueLen: 9}, nil, "",
			&journal.Routing{First: true, HostLink: true, Listed: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, TxQueueLen: 9},
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got := decideRouting(routed{asked: c.asked, ifname: c.ifname, first: c.first, defaultRoute: c.defaultRoute})
			if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyLeasedAddressesAreRouted(t *testing.T) {
	got := decideRouting(routed{
		ifname: "eth0",
		configured: []agentapi.ConfiguredAddress{
			{Address: netip.MustParsePrefix("10.0.0.7/24"), Gateway: netip.MustParseAddr("10.0.0.1")},
			{Address: netip.MustParsePrefix("192.0.2.7/24"), Gateway: netip.MustParseAddr("192.0.2.1")},
			{Address: netip.MustParsePrefix("fd00::7/64")},
		},
		addresses: []journal.Address{{Addr: netip.MustParseAddr("10.0.0.7")}, {Addr: netip.MustParseAddr("fd00::7")}},
	})
	want := &journal.Routing{
		First: true, HostLink: true,
		Subnets:  []netip.Prefix{netip.MustParsePrefix("10.0.0.7/24"), netip.MustParsePrefix("fd00::7/64")},
		Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}
