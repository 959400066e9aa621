// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package parent

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// Bridges of container engines have fe80::1 on many nodes, as routers have on their networks.
func TestALinkLocalAddressIsTheNodesOnItsParentOnly(t *testing.T) {
	node, router := network.New(t, "node"), network.New(t, "router")
	check.OK(t, node.AddPair("p0", router, "eth0"))
	check.OK(t, node.AddBridge("docker0"))
	check.OK(t, node.AddAddr("docker0", netip.MustParsePrefix("fe80::1/64")))
	check.OK(t, node.AddAddr("docker0", netip.MustParsePrefix("fd00::1/64")))
	parent := check.Value(node.Index("p0"))(t)
	is := func(addr string) (own bool) {
		t.Helper()
		check.OK(t, node.Do(func() (err error) { own, err = OfNode(parent, netip.MustParseAddr(addr)); return err }))
		return own
	}
	check.That(t, !is("fe80::1") && is("fd00::1"), "of another interface: fe80::1 %t, fd00::1 %t, want false and true", is("fe80::1"), is("fd00::1"))
	check.OK(t, node.AddAddr("p0", netip.MustParsePrefix("fe80::1/64")))
	check.That(t, is("fe80::1"), "fe80::1 of the parent is not the node's")
}

func TestEveryNameThatTheKernelResolvesIsAParent(t *testing.T) {
	const long = "uplink-of-the-underlay-in-rack-seven"
	node := network.New(t, "node")
	check.OK(t, node.AddBridge("p0"))
	index := check.Value(node.Index("p0"))(t)
	check.OK(t, node.Do(func() error {
		link := check.Value(netlink.LinkByName("p0"))(t)
		for _, name := range []string{"uplink", long} {
			check.OK(t, netlink.LinkAddAltName(link, name))
			got, exists, err := Index(name)
			check.That(t, err == nil && exists && got == index, "%s: %d, %v, %v", name, got, exists, err)
			names := check.Value(Named(pool("v4", name)))(t)
			check.List(t, names, []string{"p0"}, "named")
			check.That(t, check.Value(Describe(index))(t).Carries(&pool("v4", name).Spec), "p0 does not carry a pool of %s", name)
			check.Equal(t, nameOf(index, "?"), "p0", "name")
		}
		return nil
	}))
}
