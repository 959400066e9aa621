// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// The guard of a veth is on the node's end, where frames from the pod come in. It outlives the agent, and a dead
// slot passes nothing in either direction.
func TestAGuardOnTheNodesEndOfAVeth(t *testing.T) {
	withAndWithoutTCX(t, func(t *testing.T, o Options) {
		r := newRigWith(t, o)
		check.OK(t, r.node.AddPair(nodeEnd, r.pod.Namespace, podEnd))
		r.node.up(nodeEnd)
		r.pod.up(podEnd)
		const slot = 7
		mac, to := r.pod.mac(podEnd), r.node.mac(nodeEnd)
		g := Guard{
			Slot: slot, Segment: r.parent, NetNS: r.pod.path, Interface: podEnd,
			NodeEnd: check.Value(r.node.Index(nodeEnd))(t),
		}
		check.OK(t, r.Leases.Install(Key{r.key.Segment, nobody4}, Lease{Token: 100, Network: network, Slot: slot, MAC: mac}))
		r.node.do(func() error { return attachGuard(r.Kernel, g) })
		check.OK(t, r.Sources.Set(slot, Sources{Mode: SourcesEnforce, MAC: mac}))
		own, foreign := eth(to, mac, etherIPv4, ipv4(nobody4, far4)), eth(to, mac, etherIPv4, ipv4(other4, far4))
		answer := eth(mac, to, etherIPv4, ipv4(far4, nobody4))
		judged := func(when string, alive bool) {
			t.Helper()
			attached := in(r.node, func() (bool, error) { return r.Guards.Attached(slot) })
			check.That(t, attached, "%s: the guard is gone", when)
			check.Equal(t, r.leaves(own), alive, "%s: the pod's own frame leaves:", when)
			check.Equal(t, r.leaves(foreign), false, "%s: a frame with a sibling's address leaves:", when)
			check.Equal(t, r.enters(answer), alive, "%s: a frame to the pod enters:", when)
		}
		judged("at first", true)
		r.reopen(o)
		r.node.do(func() error { return r.Guards.Pin(g) }) // as an agent does that finds the entry
		judged("after a restart", true)
		check.OK(t, r.Guards.Kill(slot))
		judged("killed", false)
		r.node.do(func() error { return r.Guards.Detach(slot) })
		check.Equal(t, r.leaves(foreign), true, "detached: a frame leaves:")
	})
}
