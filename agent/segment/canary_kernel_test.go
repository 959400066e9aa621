// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

// A canary may be an address that its user has just left, and that an ADD of another node probes. The
// question must not take the address from that ADD.
func TestAnADDGoesOnWhileItsAddressIsAskedAsACanary(t *testing.T) {
	for name, addr := range map[string]netip.Addr{"IPv4": rig4, "IPv6": rig6} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			adder, verifier, away := r.addNode("node1"), r.addNode("node2"), r.addNode("node3")
			zombie, sought := away.addPod("zombie", addr, 100), addr.Next()
			check.OK(t, away.seg.Claim(t.Context(), zombie.holding(100).claim()))
			eventually(t, "the verifier hears another node", patience, func() bool {
				_, ok, err := verifier.kernel.Heard(uint32(verifier.parent))
				return err == nil && ok
			})
			check.OK(t, r.network.SetUp(away.port, false))
			r.addHost("user").announce(t, sought)
			eventually(t, "the address is the first canary", patience, func() bool {
				speakers, err := verifier.kernel.Speakers(uint32(verifier.parent), addr.Is4(), 1)
				return err == nil && len(speakers) == 1 && speakers[0] == sought
			})

			probed := make(chan Answer, 1)
			go func() {
				a, err := adder.seg.Probe(t.Context(), sought, ProbeParams{Rounds: 60, Interval: 50 * time.Millisecond})
				if err != nil {
					t.Error(err)
				}
				probed <- a
			}()
			eventually(t, "the ADD probes", patience, func() bool {
				_, watched, err := adder.kernel.Lease(adder.seg.key(sought))
				return err == nil && watched
			})
			verdict, e := verifier.verify(zombie.takeover(200))
			equal(t, "verdict", verdict, Unknown) // nobody answers
			equal(t, "canaries were asked", e.Asked > 0, true)
			select {
			case a := <-probed:
				t.Errorf("the ADD had ended before the canary was asked: %+v", a)
			default:
				equal(t, "the ADD has a conflict", (<-probed).Conflict, false)
			}
		})
	}
}
