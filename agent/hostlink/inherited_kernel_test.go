// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// sysctls writes values below /proc/sys/net in a namespace.
func (r *rig) sysctls(in *network.Namespace, values map[string]string) {
	r.Helper()
	check.OK(r, in.Do(func() error {
		for name, value := range values {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
				return err
			}
		}
		return nil
	}))
}

// New links take over the settings "default", and "all" counts for each link. Administrators and other
// networks change both.
func TestAHostLinkWorksWhateverItInherits(t *testing.T) {
	hostile := map[string]string{
		"ipv4/conf/default/rp_filter": "1", "ipv4/conf/default/accept_local": "1", "ipv4/conf/default/proxy_arp": "1",
		"ipv4/conf/default/arp_ignore": "8", "ipv4/conf/default/forwarding": "0", "ipv4/conf/default/arp_filter": "1",
		"ipv6/conf/default/disable_ipv6": "1", "ipv6/conf/default/accept_ra": "2", "ipv6/conf/default/accept_dad": "2",
	}
	for _, c := range []struct{ name, all string }{{"default", ""}, {"all, strict", "1"}, {"all, loose", "2"}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
			for _, side := range []*network.Namespace{r.node, pod} {
				r.sysctls(side, hostile)
				if c.all != "" {
					r.sysctls(side, map[string]string{"ipv4/conf/all/rp_filter": c.all})
				}
			}
			check.OK(r, r.links.Make(entries[0]))
			check.OK(r, r.links.Check(entries[0]))
			r.wantBothWays(pod)
			end := NodeEnd(entries[0].Attachment())
			check.OK(r, r.node.Do(func() error {
				return putSettings([]setting{{"net/ipv4/conf/" + end + "/accept_local", "0", false}, {"net/ipv4/conf/" + end + "/proxy_arp", "0", false}}, look)
			}))
		})
	}
}

// wantBothWays fails the test unless the first pod and its node reach each other in both families.
func (r *rig) wantBothWays(pod *network.Namespace) {
	r.Helper()
	r.wantAnswers(r.node, pod, nodeAddr4+":80", nodeAddr4+":80", "10.0.0.7")
	r.wantAnswers(r.node, pod, "["+nodeAddr6+"]:80", "["+nodeAddr6+"]:80", "fd00::7")
	r.wantAnswers(pod, r.node, ":80", "10.0.0.7:80", nodeAddr4)
	r.wantAnswers(pod, r.node, ":80", "[fd00::7]:80", nodeAddr6)
}

// The kernel gives macvlan interfaces a lower MTU of their parent, and not a higher one.
func TestAHostLinkOutlivesAChangeOfTheParentsMTU(t *testing.T) {
	r, pod, e := linked(t, "10.0.0.7/24", "fd00::7/64")
	parent := r.link(r.node, "ul0")
	for _, mtu := range []int{1400, 9000, 1280} {
		check.OK(r, r.node.Links().LinkSetMTU(parent, mtu))
		check.OK(r, r.links.Repair())
		check.OK(r, r.links.Check(e))
		r.wantBothWays(pod)
	}
}

// The Node object may have an address that no interface has: behind a NAT, or after a change.
func TestANodeAddressThatTheNodeLacksIsNoSource(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
	r.links.NodeAddresses = func() []netip.Addr { return addrs("203.0.113.9", "2001:db8::9", nodeAddr4) }
	check.OK(r, r.links.Make(entries[0]))
	check.OK(r, r.links.Check(entries[0]))
	r.wantAnswers(r.node, pod, nodeAddr4+":80", nodeAddr4+":80", "10.0.0.7")
	r.wantAnswers(pod, r.node, ":80", "10.0.0.7:80", nodeAddr4)
	r.wantAnswers(pod, r.node, ":80", "[fd00::7]:80", nodeAddr6)
}

// A program of another version may have the same name.
func TestAProgramThatDoesNotMarkIsReplaced(t *testing.T) {
	r, pod, e := linked(t, "10.0.0.7/24")
	link := r.link(pod, "host-eth0")
	check.OK(r, pod.Do(func() error { return putMark(pod.Links(), link, 1) }))
	check.Equal(t, r.wantBroken(e), ErrBroken.Error()+": host-eth0 does not mark its frames", "Check:")
	check.OK(r, r.links.Repair())
	check.OK(r, r.links.Check(e))
	filters, err := pod.Links().FilterList(link, netlink.HANDLE_MIN_INGRESS)
	check.That(t, err == nil && len(filters) == 1, "filters %v, %v", filters, err)
}

// The kernel removes an IPv6 route without a look at its source, so the removal of the route with the
// old source would hit the new one.
func TestRoutesStayWhenTheSourceChanges(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.50/24", "fd00::50/64"})
	e := entries[0]
	for _, second := range prefixes("10.0.0.51/24", "fd00::51/64") {
		check.OK(r, pod.AddAddr("eth0", second))
		e.Addresses = append(e.Addresses, attachment.Address{Addr: second.Addr()})
		e.Routing.Subnets = append(e.Routing.Subnets, second)
	}
	check.OK(r, r.links.Make(e))
	check.OK(r, r.links.Check(e))

	// The node's preferred address changes.
	check.OK(r, r.node.AddAddr("mgmt0", netip.MustParsePrefix("172.30.0.12/24")))
	check.OK(r, r.node.AddAddr("mgmt0", netip.MustParsePrefix("fd30::12/64")))
	r.links.NodeAddresses = func() []netip.Addr { return addrs("172.30.0.12", "fd30::12") }
	check.OK(r, r.links.Make(e))
	check.Is(t, r.links.Check(e), nil, "after another address of the node:")

	// The pod's first addresses are fenced.
	r.guards.fence(e.Addresses[0].Addr.String())
	r.guards.fence(e.Addresses[1].Addr.String())
	check.OK(r, r.links.Make(e))
	check.Is(t, r.links.Check(e), nil, "after a fence of the first addresses:")
}
