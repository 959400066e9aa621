// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

// ruledOut is an error of some candidates, each with a reason of some bytes.
func ruledOut(ipv6 bool, candidates, size int) *ipam.NoPoolError {
	e := &ipam.NoPoolError{IPv6: ipv6, Interface: "pod shop/web interface eth0", Source: "the CNI configuration"}
	for i := range candidates {
		reason := fmt.Sprintf("%d is its reason", i)
		e.Rejected = append(e.Rejected, ipam.Rejection{
			Pool: fmt.Sprintf("p%d", i), Reason: ipam.Disabled, Detail: reason + strings.Repeat("x", max(0, size-len(reason)-1)) + "!",
		})
	}
	return e
}

func TestAnEventTellsWholeCandidates(t *testing.T) {
	short, long := ruledOut(false, 2, 50), ruledOut(true, 100, 60)
	uneven := ruledOut(false, 3, 60)
	uneven.Rejected[1].Detail = strings.Repeat("y", 2000)
	for _, c := range []struct {
		rule string
		err  error
		told []string // what the note holds, in this order
		more string   // how it counts the others
	}{
		{"all that fit", short, []string{"no IPv4 address", "pool p0: 0 is", "pool p1: 1 is"}, ""},
		{"as many as fit", long, []string{"no IPv6 address", "pool p0: 0 is", "pool p11: 11 is"}, "; … and 88 more"},
		{"one that is too long is counted, not cut", uneven, []string{"pool p0: 0 is", "pool p2: 2 is"}, "; … and 1 more"},
		{"both families, the short one wholly", errors.Join(short, long),
			[]string{"no IPv4 address", "pool p1: 1 is", "no IPv6 address", "pool p0: 0 is", "pool p8: 8 is"}, "; … and 91 more"},
		{"what to do stays", refusal.Answer(long), []string{"no IPv6 address", "pool p0: 0 is"}, "more; see kubectl get flpool"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got := note(c.err)
			check.That(t, len(got) <= event.MaxNote, "%d bytes", len(got))
			rest := got
			for _, part := range c.told {
				_, after, ok := strings.Cut(rest, part)
				check.Must(t, ok, "no %q follows in %q", part, got)
				rest = after
			}
			check.That(t, strings.Contains(got, "more") == (c.more != "") && strings.HasSuffix(got, c.more),
				"it ends with %q, want %q", got[len(got)-40:], c.more)
			for _, clause := range strings.Split(got, "; ") {
				if _, reason, ok := strings.Cut(clause, ": pool p"); ok {
					clause = "pool p" + reason
				}
				check.That(t, !strings.HasPrefix(clause, "pool p") || strings.Contains(clause, "!"), "a reason is cut: %q", clause)
			}
		})
	}
}

func TestAnErrorOfAnotherKindIsCutAtALetter(t *testing.T) {
	got := note(errors.New(strings.Repeat("ä", event.MaxNote)))
	check.That(t, len(got) <= event.MaxNote && strings.Trim(got, "ä") == "...", "%d bytes, %q", len(got), got[len(got)-10:])
}

func TestDecideRouting(t *testing.T) {
	underlay, listed := &attachment.Routing{First: true, HostLink: true}, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, c := range []struct {
		rule         string
		ifname       string
		asked        agentapi.Routing
		first        *attachment.Routing
		defaultRoute string
		want         *attachment.Routing
	}{
		{"the first interface is the pod's network", "eth0", agentapi.Routing{}, nil, "", &attachment.Routing{First: true, HostLink: true}},
		{"auto is the default", "eth0", agentapi.Routing{Mode: agentapi.ModeAuto}, nil, "", &attachment.Routing{First: true, HostLink: true}},
		{"another network has eth0", "net1", agentapi.Routing{}, nil, "", &attachment.Routing{OwnTable: true}},
		{"a second interface of the underlay", "net1", agentapi.Routing{}, underlay, "", &attachment.Routing{OwnTable: true}},
		{"off", "eth0", agentapi.Routing{Mode: agentapi.ModeOff}, nil, "", nil},
		{"off for the second interface only", "net1", agentapi.Routing{Mode: agentapi.ModeOff}, underlay, "", nil},
		{"no host link", "eth0", agentapi.Routing{HostLink: new(false)}, nil, "", &attachment.Routing{First: true}},
		{"a host link for a secondary", "net1", agentapi.Routing{HostLink: new(true)}, nil, "", &attachment.Routing{HostLink: true, OwnTable: true}},
		{"overlay for eth0", "eth0", agentapi.Routing{Mode: agentapi.ModeOverlay}, nil, "", &attachment.Routing{OwnTable: true}},
		{"underlay for a secondary", "net1", agentapi.Routing{Mode: agentapi.ModeUnderlay}, nil, "", &attachment.Routing{OwnTable: true}},
		{"default routes on another interface", "eth0", agentapi.Routing{}, nil, "net1", &attachment.Routing{First: true, HostLink: true, OwnTable: true}},
		{"default routes here", "eth0", agentapi.Routing{}, nil, "eth0", &attachment.Routing{First: true, HostLink: true}},
		{"the underlay has the default routes", "net1", agentapi.Routing{}, nil, "net1", &attachment.Routing{OwnTable: true, TakesDefault: true}},
		{"another interface of the underlay has them", "net1", agentapi.Routing{}, underlay, "net1", &attachment.Routing{OwnTable: true}},
		{"listed destinations and the queue are passed on", "eth0", agentapi.Routing{HostLinkCIDRs: listed, TxQueueLen: 9}, nil, "",
			&attachment.Routing{First: true, HostLink: true, Listed: listed, TxQueueLen: 9}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got := decideRouting(routed{asked: c.asked, ifname: c.ifname, first: c.first, defaultRoute: c.defaultRoute})
			check.SameBy(t, cmp.Options{cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})}, got, c.want, "routing")
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
		addresses: []attachment.Address{{Addr: netip.MustParseAddr("10.0.0.7")}, {Addr: netip.MustParseAddr("fd00::7")}},
	})
	want := &attachment.Routing{
		First: true, HostLink: true,
		Subnets:  []netip.Prefix{netip.MustParsePrefix("10.0.0.7/24"), netip.MustParsePrefix("fd00::7/64")},
		Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
	check.SameBy(t, cmp.Options{cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})}, got, want, "routing")
}
