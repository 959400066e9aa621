// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/check"
)

// Figures: what a client sees of a zombie that announces itself every 10 ms,
// before and after the new owner's claim and one announcement.
func TestFiguresAnnouncingZombie(t *testing.T) {
	const span = 3 * time.Second
	r := newRig(t)
	n1, n2 := r.addNode("node1"), r.addNode("node2")
	client := r.addHost("client", netip.MustParseAddr("10.99.0.51"))
	zombie, owner := n2.addPod("zombie", rig4, 100), n1.addPod("owner", rig4, 200)
	serve(t, zombie, 'z')
	serve(t, owner, 'o')
	refused, stopZombie := zombie.announceEvery(t, 10*time.Millisecond)
	defer stopZombie()

	_, stopOwner := owner.announceEvery(t, 150*time.Millisecond)
	before := client.connects(t, span, time.Second)
	stopOwner()
	t.Logf("before the claim, %s: %s", span, before)
	check.That(t, before.misrouted != 0 && before.macChanges != 0, "the rig does not show two speakers")

	check.OK(t, n1.seg.ClaimAndConfirm(t.Context(), owner.takeover(200).Claim))
	check.OK(t, n1.seg.announce(t.Context(), owner.holding(200).Announcement, announceAt()[:1]))
	client.believes(t, "the owner", rig4, owner.mac)
	earlier := refused()
	after := client.connects(t, span, patience)
	t.Logf("after it, %s: %s; %d frames of the zombie were refused", span, after, refused()-earlier)
	check.Becomes(t, patience, "the zombie goes on", func() bool { return refused()-earlier >= 200 })
	equal(t, "connects that reached the zombie", after.misrouted, 0)
	equal(t, "failed connects", after.failed, 0)
	equal(t, "MAC changes", after.macChanges, 0)
}

// serve answers each connection to port 80 of the pod with one byte.
func serve(t *testing.T, p *pod, name byte) {
	t.Helper()
	var l net.Listener
	check.OK(t, p.ns.Do(func() (err error) { l, err = net.Listen("tcp4", ":80"); return err }))
	var accepts sync.WaitGroup
	accepts.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := c.Write([]byte{name}); err != nil {
				t.Logf("serve %c: %v", name, err) // the client sees a failed connect
			}
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		check.OK(t, l.Close())
		accepts.Wait()
	})
}

// announceEvery makes the pod's own process send gratuitous ARP. refused counts the frames that did not
// leave the pod.
func (p *pod) announceEvery(t *testing.T, d time.Duration) (refused func() int64, stop func()) {
	t.Helper()
	out := check.Value(OpenPort(p.ns.Path(), "eth0", 0))(t)
	announcement := check.Value(frames.Announce(p.mac, p.addr))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var fenced atomic.Int64
	var run sync.WaitGroup
	run.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			for _, f := range announcement {
				err := out.Send(f)
				if errors.Is(err, unix.ENOBUFS) { // it is fenced
					fenced.Add(1)
				} else if err != nil {
					t.Errorf("zombie announces: %v", err)
				}
			}
		}
	})
	return fenced.Load, func() {
		cancel()
		run.Wait()
		check.OK(t, out.Close())
	}
}

// tally is what a client met.
type tally struct{ connects, misrouted, failed, macChanges int }

func (c tally) String() string {
	return fmt.Sprintf("%d of %d connects reached the zombie, %d failed, %d MAC changes", c.misrouted, c.connects, c.failed, c.macChanges)
}

// connects connects to the address about 48 times a second for d. Each waits
// for its answer as long as the host is patient.
func (h *host) connects(t *testing.T, d, patient time.Duration) (c tally) {
	t.Helper()
	changes := h.countMACChanges(t)
	check.OK(t, h.ns.Do(func() error {
		tick := time.NewTicker(time.Second / 48)
		defer tick.Stop()
		for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
			c.connects++
			switch whoAnswers(netip.AddrPortFrom(rig4, 80), patient) {
			case 'o':
			case 'z':
				c.misrouted++
			default:
				c.failed++
			}
		}
		return nil
	}))
	c.macChanges = changes()
	return c
}

func whoAnswers(to netip.AddrPort, patient time.Duration) byte {
	conn, err := net.DialTimeout("tcp4", to.String(), patient)
	if err != nil {
		return 0
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(patient)); err != nil {
		return 0
	}
	var b [1]byte
	if _, err := conn.Read(b[:]); err != nil {
		return 0
	}
	return b[0]
}

// countMACChanges counts how often the host changes its mind about rig4.
func (h *host) countMACChanges(t *testing.T) (stop func() int) {
	t.Helper()
	updates, done := make(chan netlink.NeighUpdate), make(chan struct{})
	check.OK(t, h.ns.Do(func() error {
		return netlink.NeighSubscribeWithOptions(updates, done, netlink.NeighSubscribeOptions{ListExisting: true})
	}))
	var changes atomic.Int64
	var count sync.WaitGroup
	count.Go(func() {
		var known net.HardwareAddr
		for u := range updates {
			if a, ok := netip.AddrFromSlice(u.IP); !ok || a.Unmap() != rig4 || len(u.HardwareAddr) == 0 {
				continue
			}
			if known != nil && known.String() != u.HardwareAddr.String() {
				changes.Add(1)
			}
			known = u.HardwareAddr
		}
	})
	return func() int {
		close(done)
		count.Wait()
		return int(changes.Load())
	}
}
