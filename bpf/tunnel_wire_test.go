// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !guest

// Guests have no module for tunnels.

package bpf

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

// A CNI whose programs send the packets of pods into a tunnel keeps their sockets. The tunnel has an address of the node.
func TestATunnelKeepsTheSocketOfThePod(t *testing.T) {
	r := newWireRig(t)
	r.exclude(r.node.mac("p0"))
	pod := newNetNS(t, "tunnelled")
	check.OK(t, pod.AddPair("eth0", r.node.Namespace, "lxc0"))
	pod.up("eth0")
	r.node.up("lxc0")
	r.node.addAddr("p0", node4)
	r.node.neighbour("p0", far4, r.ext.mac("p0"))
	check.OK(t, r.node.Links().LinkAdd(&netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: "vx0"}, VxlanId: 9, SrcAddr: node4.AsSlice(), Group: far4.AsSlice(), Port: 8472, VtepDevIndex: r.parent,
	}))
	r.node.up("vx0")
	r.redirect("lxc0", "vx0")
	heard, from := r.ext.socket("p0", unix.ETH_P_IP), pod.socket("eth0", unix.ETH_P_LOOP)
	inner := eth(broadcast, pod.mac("eth0"), etherIPv4, ipv4(netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("10.77.1.2")))
	last := marker(inner, r.pod.mac("eth0"), broadcast)
	from.send(inner)
	r.bypass(r.pod, "eth0").send(last)
	equal(t, "passes from an address that the node does not have", heard.hears(ipFrom(node4), like(last)), false)
	check.OK(t, r.Sources.SetNodeAddresses([]netip.Addr{node4}))
	from.send(inner)
	heard.expect("a packet of the tunnel", ipFrom(node4))
}
