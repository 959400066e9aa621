// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

func prefixes(all ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range all {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func addrs(all ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range all {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// texts returns routes as ip-route(8) writes them.
func texts(routes []Route) []string {
	var out []string
	for _, r := range routes {
		text := r.Dst.String()
		if r.Via.IsValid() {
			text += " via " + r.Via.String()
		}
		if r.Src.IsValid() {
			text += " src " + r.Src.String()
		}
		switch r.Table {
		case mainTable:
		case ownTables + 2:
			text += " own"
		case replyTables + 2:
			text += " reply"
		default:
			text += " ?"
		}
		out = append(out, text)
	}
	return out
}

func TestPlan(t *testing.T) {
	base := Facts{
		Index: 2, Addresses: prefixes("10.0.0.7/24"), Gateways: addrs("10.0.0.1"), HostLink: true, First: true,
		Node: addrs("172.30.0.11", "fd30::11"), Services: prefixes("10.96.0.0/16", "fd96::/112"),
	}
	with := func(change func(*Facts)) Facts {
		f := base
		change(&f)
		return f
	}
	for _, c := range []struct {
		rule      string
		facts     Facts
		link, own []string
		rules     []string
	}{
		{"node and Services behind the host link", base,
			[]string{"10.96.0.0/16 via 169.254.255.1 src 10.0.0.7", "172.30.0.11/32 via 169.254.255.1 src 10.0.0.7", "0.0.0.0/0 via 169.254.255.1 reply", "169.254.255.2/32 reply"},
			nil, []string{"100: from all fwmark 0x464c0002 lookup 2002"}},
		{
			"an address of the pod itself is local", with(func(f *Facts) { f.Node = append(slices.Clone(f.Node), f.Addresses[0].Addr()); f.Services = nil }),
			[]string{"172.30.0.11/32 via 169.254.255.1 src 10.0.0.7", "0.0.0.0/0 via 169.254.255.1 reply", "169.254.255.2/32 reply"},
			nil, []string{"100: from all fwmark 0x464c0002 lookup 2002"},
		},
		{"no host link", with(func(f *Facts) { f.HostLink = false }), nil, nil, nil},
		{
			"a listed destination that the node has as well", with(func(f *Facts) { f.Listed = prefixes("172.30.0.11/32", "192.0.2.0/24"); f.Services = nil }),
			[]string{"172.30.0.11/32 via 169.254.255.1 src 10.0.0.7", "192.0.2.0/24 via 169.254.255.1 src 10.0.0.7", "0.0.0.0/0 via 169.254.255.1 reply", "169.254.255.2/32 reply"},
			nil, []string{"100: from all fwmark 0x464c0002 lookup 2002"},
		},
		{"a second interface answers by itself", with(func(f *Facts) { f.HostLink, f.First, f.OwnTable = false, false, true }), nil,
			[]string{"10.0.0.0/24 src 10.0.0.7 own", "0.0.0.0/0 via 10.0.0.1 own"}, []string{"200: from 10.0.0.7 lookup 1002"}},
		{
			"its own default route wins over the gateway", with(func(f *Facts) {
				f.HostLink, f.First, f.OwnTable = false, false, true
				f.Routes = []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.0.0.3"), Table: mainTable}}
			}), nil,
			[]string{"10.0.0.0/24 src 10.0.0.7 own", "0.0.0.0/0 via 10.0.0.3 own"},
			[]string{"200: from 10.0.0.7 lookup 1002"},
		},
		{"the host link of a secondary serves its address only", with(func(f *Facts) { f.First, f.OwnTable = false, true; f.Services = nil }),
			[]string{"172.30.0.11/32 via 169.254.255.1 src 10.0.0.7 own", "0.0.0.0/0 via 169.254.255.1 reply", "169.254.255.2/32 reply"},
			[]string{"10.0.0.0/24 src 10.0.0.7 own", "0.0.0.0/0 via 10.0.0.1 own"},
			[]string{"100: from all fwmark 0x464c0002 lookup 2002", "200: from 10.0.0.7 lookup 1002"}},
		{"everything is fenced", with(func(f *Facts) { f.Addresses = nil }), nil, nil, nil},
	} {
		t.Run(c.rule, func(t *testing.T) {
			p := Make(c.facts)
			check.Same(t, texts(p.Link), c.link, "through the host link")
			check.Same(t, texts(p.Own), c.own, "through the interface")
			var rules []string
			for _, r := range p.Rules {
				rules = append(rules, r.String())
			}
			check.Same(t, rules, c.rules, "rules")
		})
	}
}

// Without another source, the kernel would choose the address of the pod's end.
func TestThePodsEndWaitsForAnAddressOfThePod(t *testing.T) {
	f := Facts{Index: 2, Addresses: prefixes("10.0.0.7/24", "fd00::7/64", "fd00::8/64"), HostLink: true, First: true}
	for _, c := range []struct {
		rule            string
		tentative, want []netip.Addr
	}{
		{"none is tentative", nil, addrs("169.254.255.2", "fe80::fe:2")},
		{"one is tentative", addrs("fd00::7"), addrs("169.254.255.2", "fe80::fe:2")},
		{"all are tentative", addrs("fd00::7", "fd00::8"), addrs("169.254.255.2")},
	} {
		f.Tentative = c.tentative
		check.List(t, Make(f).Ends, c.want, "%s:", c.rule)
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		rule             string
		subnets          []netip.Prefix
		services, listed []netip.Prefix
		link             bool
		says             string // "": it is not refused
	}{
		{"apart", prefixes("10.0.0.7/24"), prefixes("10.96.0.0/16"), prefixes("192.0.2.0/24"), true, ""},
		{"a service CIDR inside the subnet", prefixes("10.96.0.7/8"), prefixes("10.96.0.0/16"), nil, true, "service CIDR 10.96.0.0/16 and subnet 10.0.0.0/8 overlap"},
		{"the subnet inside a service CIDR", prefixes("10.96.3.7/24"), prefixes("10.96.0.0/16"), nil, true, "service CIDR 10.96.0.0/16 and subnet 10.96.3.0/24 overlap"},
		{"of the other family", prefixes("fd00::7/64"), prefixes("10.96.0.0/16"), nil, true, ""},
		{"without a host link", prefixes("10.96.0.7/8"), prefixes("10.96.0.0/16"), nil, false, ""},
		{"a listed destination around the subnet", prefixes("10.0.0.7/24"), nil, prefixes("10.0.0.0/8"), true, ""},
		{"the subnet itself", prefixes("10.0.0.7/24"), nil, prefixes("10.0.0.0/24"), true, `"hostLinkCIDRs" has 10.0.0.0/24, and the subnet is 10.0.0.0/24`},
		{"a part of the subnet", prefixes("10.0.0.7/24"), nil, prefixes("10.0.0.128/25"), true, `"hostLinkCIDRs" has 10.0.0.128/25, and the subnet is 10.0.0.0/24`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			err := overlap(&attachment.Routing{HostLink: c.link, Subnets: c.subnets, Listed: c.listed}, c.services)
			check.That(t, errors.Is(err, ErrOverlap) == (c.says != "") && strings.Contains(fmt.Sprint(err), c.says), "got %v, want %q", err, c.says)
		})
	}
}

func TestNamesFitIntoTheKernel(t *testing.T) {
	for _, ifname := range []string{"eth0", "net1", "a-fifteen-chars"} {
		a := agentapi.Attachment{ContainerID: "c", Interface: ifname}
		n, p := NodeEnd(a), PodEnd(a)
		check.That(t, len(n) <= nameMax && len(p) <= nameMax, "%s: %q and %q", ifname, n, p)
	}
	of := func(ifname string) string { return NodeEnd(agentapi.Attachment{ContainerID: "c", Interface: ifname}) }
	check.That(t, of("eth0") != of("net1"), "two interfaces of a pod share a name")
}

// Only a namespace that is seen to be absent is gone: an error of another kind says nothing about the
// pod, whose routing then stays.
func TestAPodIsGoneOnlyIfItsNamespaceIsAbsent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "left-by-an-unmount")
	check.OK(t, os.WriteFile(file, nil, 0o600))
	loop := file + "-loop"
	check.OK(t, os.Symlink(loop, loop))
	for path, gone := range map[string]bool{
		file + "-absent": true,
		file:             true,
		loop:             false, // ELOOP stands for all errors of the path itself
	} {
		_, err := openPod(&attachment.Entry{NetNS: path})
		check.That(t, err != nil && errors.Is(err, ErrGone) == gone, "%s: gone is to be %v: %v", path, gone, err)
	}
}

// A kernel that was started with ipv6.disable=1 knows no routes and rules of IPv6.
func TestOnlyIPv6MayBeMissing(t *testing.T) {
	for _, c := range []struct {
		family int
		err    error
		want   bool
	}{
		{unix.AF_INET6, unix.EAFNOSUPPORT, true},
		{unix.AF_INET6, fmt.Errorf("list: %w", unix.EOPNOTSUPP), true},
		{unix.AF_INET6, unix.EPERM, false},
		{unix.AF_INET, unix.EAFNOSUPPORT, false},
		{unix.AF_INET6, nil, false},
	} {
		check.Equal(t, lacks(c.family, c.err), c.want, "family %d, %v:", c.family, c.err)
	}
}
