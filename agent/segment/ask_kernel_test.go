// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// ask asks for an address from a node.
func (n *node) ask(addr netip.Addr) Reply {
	n.rig.t.Helper()
	var reply Reply
	check.OK(n.rig.t, n.ns.Do(func() (err error) {
		reply, err = n.seg.Ask(n.rig.t.Context(), addr)
		return err
	}))
	return reply
}

func TestARouterAnswersTheQuestionForAGateway(t *testing.T) {
	test := func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addNode("node1")
		router := r.addHost("router", addr)
		sent := startCapture(t, r.network, n.port)
		reply := n.ask(addr)
		equal(t, "answered", reply.Answered, true)
		equal(t, "MAC", reply.MAC.String(), router.mac.String())
		questions := func(t *testing.T, want int) {
			t.Helper()
			check.Becomes(t, patience, "the questions in the capture", func() bool { return len(sent.list(probeFrom(n.mac))) >= want })
			equal(t, "questions", len(sent.list(probeFrom(n.mac))), want)
		}
		questions(t, 1)
		t.Run("and a burst asks once", func(t *testing.T) {
			watch := check.Value(n.set.watches.start(n.seg.key(addr)))(t) // of another ADD
			equal(t, "answered", n.ask(addr).Answered, true)
			equal(t, "answered again", n.ask(addr).Answered, true)
			check.OK(t, watch.end())
			equal(t, "answered after the burst", n.ask(addr).Answered, true)
			questions(t, 3)
		})
	}
	families(t, test)
	t.Run("link-local", func(t *testing.T) { test(t, netip.MustParseAddr("fe80::1")) })
}

func TestAPodThatIsTheGatewayAnswers(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addNode("node1")
		equal(t, "answered before", n.ask(addr).Answered, false)
		n.addPod("router", addr, 100)
		equal(t, "answered by a pod of this node", n.ask(addr).Answered, true)
		other := r.addNode("node2")
		equal(t, "answered by a pod of another node", other.ask(addr).Answered, true)
	})
}

func TestSilenceOfAGatewayIsReportedWithWhatTheParentHears(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addNode("node1")
		r.addHost("host", netip.MustParseAddr("10.99.0.51"), netip.MustParseAddr("fd99::51"))
		reply := n.ask(addr)
		equal(t, "answered", reply.Answered, false)
		equal(t, "hearing", reply.Hearing, Hearing{Carrier: true, Observed: true})
		check.OK(t, r.network.SetUp(n.port, false))
		check.Becomes(t, patience, "the parent has lost its carrier", func() bool { return !isUp(t, n.ns, "p0") })
		reply = n.ask(addr)
		equal(t, "answered without carrier", reply.Answered, false)
		equal(t, "hearing without carrier", reply.Hearing.Carrier, false)
	})
}

// Two nodes whose gateway is down must not take each other for it.
func TestTheQuestionsOfOthersAreNoAnswer(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		a, b := r.addNode("node1"), r.addNode("node2")
		answers := make(chan Reply)
		go func() { answers <- a.ask(addr) }()
		equal(t, "answered", b.ask(addr).Answered, false)
		equal(t, "answered", (<-answers).Answered, false)
	})
}

func TestAQuestionEndsWithItsCall(t *testing.T) {
	r := newRig(t)
	n := r.addNode("node1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.That(t, check.Err(n.seg.Ask(ctx, rig4)) != nil, "no error")
	_, installed, err := n.kernel.Leases.Lease(n.seg.key(rig4))
	check.That(t, err == nil && !installed, "still watched: %t, %v", installed, err)
}

// A canary may be an address that its user has just left, and that an ADD of another node probes. The
// question must not take the address from that ADD.
func TestAnADDGoesOnWhileItsAddressIsAskedAsACanary(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		adder, verifier, away := r.addNode("node1"), r.addNode("node2"), r.addNode("node3")
		zombie, sought := away.addPod("zombie", addr, 100), addr.Next()
		check.OK(t, away.seg.Claim(t.Context(), zombie.holding(100).claim()))
		check.Becomes(t, patience, "the verifier hears another node", func() bool {
			_, ok, err := verifier.kernel.Sightings.Heard(uint32(verifier.parent))
			return err == nil && ok
		})
		check.OK(t, r.network.SetUp(away.port, false))
		r.addHost("user").announce(t, sought)
		check.Becomes(t, patience, "the address is the first canary", func() bool {
			speakers, err := verifier.kernel.Sightings.Speakers(uint32(verifier.parent), addr.Is4(), 1)
			return err == nil && len(speakers) == 1 && speakers[0] == sought
		})

		// On a busy machine the ADD may end before the canary was asked.
		check.Becomes(t, patience, "the canary is asked during the ADD", func() bool {
			probed := make(chan Answer, 1)
			go func() {
				a, err := adder.seg.Probe(t.Context(), sought, ProbeParams{Rounds: 60, Interval: 50 * time.Millisecond})
				check.That(t, err == nil, "%v", err)
				probed <- a
			}()
			check.Becomes(t, patience, "the ADD probes", func() bool {
				_, watched, err := adder.kernel.Leases.Lease(adder.seg.key(sought))
				return err == nil && (watched || len(probed) > 0)
			})
			verdict, e := verifier.verify(zombie.takeover(200))
			equal(t, "verdict", verdict, Unknown) // nobody answers
			equal(t, "canaries were asked", e.Asked > 0, true)
			isDuring := len(probed) == 0
			equal(t, "the ADD has a conflict", (<-probed).Conflict, false)
			return isDuring
		})
	})
}

// Only hosts behind the uplink show who the gateway is: a pod could answer to hide that it has the MAC.
func TestAllHostsBehindTheUplinkThatAnswerAreNamed(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		n := r.addNode("node1")
		inside := network.New(t, "inside")
		check.OK(t, n.ns.AddMacvlan("p0", net.HardwareAddr{2, 0, 0, 0, 9, 9}, inside, "eth0"))
		check.OK(t, inside.SetUp("eth0", true))
		check.OK(t, inside.AddAddr("eth0", prefix(addr)))
		answerers := func() (macs []string) {
			check.OK(t, n.ns.Do(func() error {
				all, err := n.seg.Answerers(t.Context(), addr)
				for _, mac := range all {
					macs = append(macs, mac.String())
				}
				return err
			}))
			slices.Sort(macs)
			return macs
		}
		check.Becomes(t, patience, "a pod of the node answers", func() bool { return n.ask(addr).Answered })
		equal(t, "answerers", len(answerers()), 0)
		first := r.addHost("first", addr)
		check.List(t, answerers(), []string{first.mac.String()}, "answerers")
		second := r.addHost("second", addr)
		check.List(t, answerers(), []string{first.mac.String(), second.mac.String()}, "answerers")
	})
}
