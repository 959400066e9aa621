// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !guest

package segment

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/wireshark"
)

// Wireshark reads every frame that a node sends: probes, claims, acks, announcements and defences.
// It does not know the claim protocol, so of claims and acks it judges the Ethernet header only.
func TestTsharkFindsNoFaultInOurFrames(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n1, n2 := r.addNode("node1"), r.addNode("node2")
		zombie := n2.addPod("zombie", addr, 100)
		thief := r.addHost("thief")
		one, two := startCapture(t, r.network, n1.port), startCapture(t, r.network, n2.port)
		free := addr.Next().Next()
		n1.probe(free, params50)
		verdict, _ := n1.verify(zombie.takeover(200))
		equal(t, "verdict", verdict, Fenced)
		owner := n1.addPod("owner", addr, 200)
		owner.hold(200)
		check.OK(t, n1.seg.announce(t.Context(), owner.holding(200).announcement(), announceAt()[:1]))
		before := len(one.list(from(owner.mac, addr)))
		thief.announce(t, addr)
		check.Becomes(t, patience, "the defence", func() bool { return len(one.list(from(owner.mac, addr))) > before })

		kinds := map[string]func(frame) bool{
			"probes":        func(f frame) bool { return bytes.Contains(f.data[14:], free.AsSlice()) },
			"claims":        claiming(200),
			"announcements": from(owner.mac, addr),
		}
		for kind, match := range kinds {
			check.That(t, len(one.list(match)) != 0, "no %s are captured", kind)
		}
		acks := two.list(func(f frame) bool {
			c, err := claim.Unmarshal(f.data[14:], testKey)
			return err == nil && c.Flags&claim.FlagAck != 0
		})
		check.That(t, len(acks) != 0, "no acks are captured")
		everything := func(frame) bool { return true }
		sent := slices.Concat(one.list(everything), two.list(everything))
		check.None(t, tsharkFaults(t, sent), "tshark finds in %d frames:", len(sent))
		// The judge is awake: it finds a fault in an announcement that is cut off, and in one with
		// another length of a MAC (ARP) or another checksum.
		whole := one.list(from(owner.mac, addr))[0]
		other := whole
		other.data = bytes.Clone(whole.data)
		if addr.Is4() {
			other.data[14+4] ^= 0x40
		} else {
			other.data[14+40+2] ^= 0x40
		}
		for name, damaged := range map[string]frame{"cut off": {whole.at, whole.data[:14+20]}, "changed": other} {
			check.That(t, len(tsharkFaults(t, []frame{damaged})) != 0, "tshark finds no fault in an announcement that is %s", name)
		}
	})
}

// tsharkFaults returns the faults that Wireshark finds.
func tsharkFaults(t *testing.T, captured []frame) []wireshark.Fault {
	t.Helper()
	var all []wireshark.Frame
	for _, f := range captured {
		all = append(all, wireshark.Frame{At: f.at, Data: f.data})
	}
	return check.Value(wireshark.Faults(t.Context(), all))(t)
}
