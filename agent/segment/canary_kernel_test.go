// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"net"
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// A virtual machine on the bridge that is the parent hears the questions of a mute node. Only an
// address for which another node vouches shows that the node is heard.
func TestAHostOfTheNodeItselfIsNoCanary(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n1 := r.connect("node1")
		check.OK(t, n1.ns.AddBridge("br0"))
		check.OK(t, n1.ns.Replug("p0", "br0"))
		check.Becomes(t, patience, "br0 is up", func() bool { return isUp(t, n1.ns, "br0") })
		n1.join("br0")
		vm := &host{ns: network.New(t, "vm"), mac: net.HardwareAddr{2, 0, 0, 8, 8, 8}}
		check.OK(t, vm.ns.Plug("p0", vm.mac, n1.ns, "vm0", "br0"))
		check.OK(t, vm.ns.AddAddr("p0", prefix(addr.Prev())))
		n2, n3 := r.addNode("node2"), r.addNode("node3")
		zombie, neighbour := n2.addPod("zombie", addr, 100), n3.addPod("neighbour", addr.Next(), 150)
		check.Becomes(t, patience, "node1 hears node3", func() bool {
			check.OK(t, n3.seg.Claim(t.Context(), neighbour.holding(150).claim()))
			_, ok, err := n1.kernel.Sightings.Heard(uint32(n1.parent))
			return err == nil && ok
		})
		vm.announce(t, addr.Prev())

		r.mute(n1.port, true)
		v := zombie.takeover(200)
		v.Gateway = addr.Prev()
		verdict, e := n1.verify(v)
		equal(t, "R2: verdict of a mute node", verdict, Unknown)
		equal(t, "canaries", e.Asked, 1)

		r.mute(n1.port, false)
		check.OK(t, r.network.SetUp(n2.port, false))
		verdict, e = n1.verify(v)
		equal(t, "verdict once the node of the zombie is off", verdict, Silent)
		equal(t, "the canary", e.Canary, neighbour.addr)
	})
}
