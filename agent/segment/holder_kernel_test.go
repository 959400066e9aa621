// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

func (n *node) isFenced(p *pod) bool {
	n.rig.t.Helper()
	return check.Value(n.kernel.Leases.Fenced(p.key()))(n.rig.t)
}

func (n *node) met() (all []Conflict) {
	n.note(func() { all = slices.Clone(n.conflicts) })
	return all
}

func TestOfTwoHoldersTheNewerTokenWins(t *testing.T) {
	for name, first := range map[string]int{"the older one claims first": 0, "the newer one claims first": 1} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			older := r.addNode("node1").addPod("older", rig4, 100)
			newer := r.addNode("node2").addPod("newer", rig4, 200)
			older.hold(100)
			newer.hold(200)
			pods := []*pod{older, newer}
			p, token := pods[first], uint64(100*(first+1))
			check.OK(t, p.node.seg.claimOnce(t.Context(), p.holding(token).claim(), nil))
			check.Becomes(t, patience, "the older holder is fenced", func() bool { return older.node.isFenced(older) })
			equal(t, "the newer holder is fenced", newer.node.isFenced(newer), false)
			check.Becomes(t, patience, "its agent is told", func() (told bool) {
				older.node.note(func() { told = len(older.node.fences) == 1 && older.node.fences[0].Token == 200 })
				return told
			})
		})
	}
}

func TestR10ZombiesAgentIsFencedBeforeItAnnounces(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		zombie := r.addNode("node1").addPod("zombie", addr, 100)
		owner := r.addNode("node2").addPod("owner", addr, 200)
		owner.hold(200)
		seen := startCapture(t, r.network, zombie.node.port)
		check.Is(t, zombie.node.seg.ClaimAndConfirm(t.Context(), zombie.holding(100).claim()), ErrFenced, "the zombie claims:")
		// An agent that does not look at the error still gets nothing out.
		check.OK(t, zombie.node.seg.announce(t.Context(), zombie.holding(100).Announcement, announceAt()[:3]))
		equal(t, "frames of the zombie", len(seen.list(from(zombie.mac, addr))), 0)
		check.Is(t, owner.node.seg.ClaimAndConfirm(t.Context(), owner.holding(200).claim()), nil, "the owner claims:")
	})
}

func TestHealedSplitIsSettledByTheFirstRepeatedClaim(t *testing.T) {
	r := newRig(t)
	zombie := r.addNode("node1").addPod("zombie", rig4, 100)
	owner := r.addNode("node2").addPod("owner", rig4, 200)
	zombie.hold(100)
	owner.hold(200)
	r.setForwarding(zombie.node.port, false)
	owner.node.set.repeatClaim(t.Context(), owner.holding(200))
	equal(t, "fenced during the split", zombie.node.isFenced(zombie), false)
	r.setForwarding(zombie.node.port, true)
	owner.node.set.repeatClaim(t.Context(), owner.holding(200))
	check.Becomes(t, patience, "the zombie is fenced", func() bool { return zombie.node.isFenced(zombie) })
	zombie.node.set.repeatClaim(t.Context(), zombie.holding(100))
	equal(t, "claims of a fenced holder", zombie.node.set.claimsSent.Load(), 0)
}

func TestForeignSpeakerIsReportedAndAnswered(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		p := r.addNode("node1").addPod("pod", addr, 100)
		h := r.addHost("host")
		p.hold(100)
		seen := startCapture(t, r.network, p.node.port)
		h.announce(t, addr)
		check.Becomes(t, patience, "the pod announces itself", func() bool { return len(seen.list(from(p.mac, addr))) > 0 })
		check.Becomes(t, patience, "a report, which does not wait for the defence", func() bool { return len(p.node.met()) > 0 })
		met := p.node.met()
		equal(t, "reports", len(met), 1)
		equal(t, "MAC", met[0].MAC.String(), h.mac.String())
		equal(t, "source", met[0].Source, SourceObserver)
		isClaim := func(f capture.Frame) bool {
			c, err := capture.Claim(f.Payload, testKey)
			return err == nil && c.Addr == addr && c.Token == 100
		}
		equal(t, "claims, to all and to the speaker", len(seen.list(isClaim)), 2)

		h.announce(t, addr)
		h.announce(t, addr)
		check.Becomes(t, patience, "the kernel saw it again", func() bool { return check.Value(p.state())(t).Hits >= 3 })
		equal(t, "reports within ten seconds", len(p.node.met()), 1)
	})
}

func (p *pod) state() (bpf.State, error) {
	st, _, err := p.node.kernel.Leases.State(p.key())
	return st, err
}

func TestAnnouncementLeavesThePodOnceItsLinkIsUp(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		p := r.addNode("node1").addPod("pod", addr, 100)
		check.OK(t, p.ns.SetUp("eth0", false))
		seen := startCapture(t, r.network, p.node.port)
		// It must not speak while the link is down: its send would fail, and the announcement with it.
		waits := make(chan struct{})
		open := p.node.set.openPort
		p.node.set.openPort = func(a Announcement) (podPort, error) {
			port, err := open(a)
			return waitingPort{port, waits}, err
		}
		p.node.seg.Announce(p.holding(100).Announcement)
		spoken := func(f capture.Frame) bool { return from(p.mac, addr)(f) && f.Destination[0]&1 == 1 }
		perRound := len(check.Value(frames.Announce(p.mac, addr))(t))

		check.Receive(t, patience, "its wait for the link", waits)
		equal(t, "frames while the link is down", len(seen.list(spoken)), 0)
		check.OK(t, p.ns.SetUp("eth0", true))
		check.Becomes(t, patience, "all announcements", func() bool { return len(seen.list(spoken)) >= len(announceAt())*perRound })
		equal(t, "announcements", len(seen.list(spoken)), len(announceAt())*perRound) // when they come is holder_test's
	})
}

// waitingPort closes a channel when somebody waits for its link.
type waitingPort struct {
	podPort
	waits chan<- struct{}
}

func (p waitingPort) WaitUp(ctx context.Context) error {
	close(p.waits)
	return p.podPort.WaitUp(ctx)
}

func TestAnnouncementMovesTheClientsNeighbour(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		p := r.addNode("node1").addPod("pod", addr, 100)
		client := r.addHost("client", netip.MustParseAddr("10.99.0.51"), netip.MustParseAddr("fd99::51"))
		check.Becomes(t, patience, "client reaches the pod", func() bool { return reaches(client.ns, addr) })
		other := r.addHost("other")
		other.announce(t, addr)
		client.believes(t, "the foreign host", addr, other.mac)
		check.OK(t, p.node.seg.announce(t.Context(), p.holding(100).Announcement, announceAt()[:1]))
		client.believes(t, "the pod again", addr, p.mac)
	})
}

func TestClaimReachesNodesThatKnowOnlyOneKeyOfARotation(t *testing.T) {
	r := newRig(t)
	n1 := r.addNode("node1")
	zombie := r.addNode("node2").addPod("zombie", rig4, 100)
	next := claim.Key{9: 9}
	n1.set.SetKeys(next, testKey)
	newKey, oldKey := bpf.ClaimKey(next), bpf.ClaimKey(testKey)
	check.OK(t, n1.kernel.SetKeys(&newKey, &oldKey))
	verdict, _ := n1.verify(zombie.takeover(200))
	equal(t, "verdict", verdict, Fenced)
}

// The address is a guest's, whose group the kernel of its pod does not know. A switch that snoops would pass no
// solicitation for it to this port until the next query.
func TestAnAnnouncementTellsASnoopingSwitchTheGroup(t *testing.T) {
	r := newRig(t)
	check.OK(t, r.network.Snoop(network.Bridge))
	p := r.addNode("node1").addPod("launcher", rig4, 100)
	p.addr = rig6
	p.lease(200)
	group := netip.MustParseAddr("ff02::1:ff00:50")
	equal(t, "the switch knows the member before", r.hasGroup(group), false)
	p.node.seg.Announce(p.holding(200).Announcement)
	check.Becomes(t, patience, "the switch knows the member", func() bool { return r.hasGroup(group) })
}
