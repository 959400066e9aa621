// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
)

// An adapter hands up the groups that somebody has joined, and a parent without IPv6 of its own joins none: the owner of
// an address answers to all nodes. A macvlan as the parent filters as adapters do.
func TestAParentWithoutIPv6HearsTheAnswers(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		h := r.addHost("host", addr)
		n := r.connect("node1")
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = "m0", check.Value(n.ns.Index("p0"))(t)
		check.OK(t, n.ns.Links().LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}))
		check.OK(t, n.ns.SetUp("m0", true))
		check.OK(t, n.ns.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/m0/disable_ipv6", []byte("1"), 0)
		}))
		// The filter follows when it is set up again.
		check.OK(t, n.ns.SetUp("m0", false))
		check.OK(t, n.ns.SetUp("m0", true))
		eventually(t, "m0 is up", patience, func() bool { return isUp(t, n.ns, "m0") })
		n.join("m0")
		answer := n.probe(addr, params50)
		equal(t, "conflict", answer.Conflict, true)
		equal(t, "MAC", answer.MAC.String(), h.mac.String())
	})
}
