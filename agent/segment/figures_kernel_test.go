//go:build kernel

package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf"
)

// durations prints as their median and maximum.
type durations []time.Duration

func (d durations) String() string {
	s := slices.Sorted(slices.Values(d))
	return fmt.Sprintf("p50 %s, max %s", s[len(s)/2], s[len(s)-1])
}

// arpLoad makes a host ask for addr about a thousand times a second.
func (h *host) arpLoad(t *testing.T, addr netip.Addr) (stop func()) {
	t.Helper()
	p := must(openPort(h.ns.Path(), "p0"))(t)
	question := must(probeFrame(h.mac, nil, addr))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var load sync.WaitGroup
	load.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			if err := p.send(question); err != nil {
				t.Errorf("ARP load: %v", err)
				return
			}
		}
	})
	return func() {
		cancel()
		load.Wait()
		check(t, p.close())
	}
}

// Figures: how long a zombie speaks after the claim has left, under ARP load.
func TestFiguresClaimToFence(t *testing.T) {
	const rounds = 200
	for name, alive := range map[string]bool{"agent alive": true, "agent dead": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			n1, n2 := r.addNode("node1"), r.addNode("node2")
			client := r.addHost("client")
			zombie := n2.addPod("zombie", rig4, 1)
			seen := startCapture(t, r.network, n2.port)
			watch := must(n1.set.watches.start(n1.seg.key(rig4)))(t)
			kernel := n2.kernel
			if !alive {
				n2.kill()
				// For the rig to renew the lease between rounds; nobody reads an event.
				kernel = must(bpf.Open(bpf.Options{Dir: n2.pins}))(t)
			}
			stop := client.arpLoad(t, rig4)
			clock := &sendClock{wire: n1.seg.wire, kernel: n1.kernel}
			n1.seg.wire = clock
			sent := make([]time.Duration, rounds) // boot time
			var last durations
			for i := range rounds {
				// A newer lease of the same pod ends the fence of the round before.
				token := uint64(10 * (i + 1))
				check(t, kernel.InstallLease(zombie.key(), bpf.Lease{Token: token, Network: rigNetwork, Slot: zombie.slot, MAC: zombie.mac}))
				seen.reset()
				eventually(t, "the zombie answers", time.Second, func() bool { return len(seen.list(from(zombie.mac, rig4))) > 3 })
				check(t, n1.seg.claimOnce(t.Context(), Claim{Addr: rig4, Network: rigNetwork, Token: token + 1}))
				sent[i] = clock.boot
				awaitAck(t, watch, token+1)
				// The load goes on; what the zombie still says would be seen.
				time.Sleep(10 * time.Millisecond)
				frames := seen.list(from(zombie.mac, rig4))
				last = append(last, max(0, frames[len(frames)-1].at.Sub(clock.wall)))
			}
			stop()
			check(t, watch.end())
			if !alive {
				check(t, kernel.Close())
				n2.start() // takes the pins up, and reads what nobody has read
			}
			eventually(t, "all fences are reported", 5*time.Second, func() bool { return len(n2.fencedAt()) >= rounds })
			fence, ack := since(sent, n2.fencedAt()), since(sent, n1.ackedAt())
			after := 0
			for _, d := range last {
				if d > 0 {
					after++
				}
			}
			t.Logf("%s, %d rounds: claim to fence %s; claim to ack %s; zombie's last frame after the claim %s (any at all in %d rounds)",
				name, rounds, fence, ack, last, after)
			if m := slices.Max(last); m > 50*time.Millisecond {
				t.Errorf("the zombie spoke %s after the claim", m)
			}
		})
	}
}

// sendClock notes when the last frame was handed to the kernel.
type sendClock struct {
	wire
	kernel *bpf.Kernel
	boot   time.Duration
	wall   time.Time
}

func (c *sendClock) send(frame []byte) error {
	c.boot, c.wall = c.kernel.Now(), time.Now()
	return c.wire.send(frame)
}

func awaitAck(t *testing.T, w *watch, token uint64) {
	t.Helper()
	timeout := time.After(time.Second)
	for {
		select {
		case ev := <-w.events:
			if ev.Type == bpf.EventAck && ev.Token >= token {
				return
			}
		case <-timeout:
			t.Fatalf("no ack for token %d", token)
		}
	}
}

func (n *node) fencedAt() []time.Duration { return n.times(&n.fenced) }
func (n *node) ackedAt() []time.Duration  { return n.times(&n.acks) }

func (n *node) times(events *[]bpf.Event) []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	var at []time.Duration
	for _, ev := range *events {
		at = append(at, ev.At)
	}
	return at
}

// since pairs each start with the first later end.
func since(starts, ends []time.Duration) (d durations) {
	for _, s := range starts {
		i := slices.IndexFunc(ends, func(e time.Duration) bool { return e >= s })
		if i >= 0 {
			d = append(d, ends[i]-s)
		}
	}
	return d
}

// Figures: what a client sees of a zombie that announces itself every 100 ms,
// before and after the new owner's claim and one announcement.
func TestFiguresAnnouncingZombie(t *testing.T) {
	const span = 20 * time.Second
	r := newRig(t)
	n1, n2 := r.addNode("node1"), r.addNode("node2")
	client := r.addHost("client", netip.MustParseAddr("10.99.0.51"))
	zombie, owner := n2.addPod("zombie", rig4, 100), n1.addPod("owner", rig4, 200)
	serve(t, zombie, 'z')
	serve(t, owner, 'o')
	stopZombie := zombie.announceEvery(t, 100*time.Millisecond)
	defer stopZombie()

	stopOwner := owner.announceEvery(t, time.Second)
	before := client.connects(t, span)
	stopOwner()
	t.Logf("before the claim, %s: %s", span, before)
	if before.misrouted == 0 || before.macChanges == 0 {
		t.Error("the rig does not show two speakers")
	}

	check(t, n1.seg.ClaimAndConfirm(t.Context(), owner.takeover(200).Claim))
	check(t, n1.seg.announce(t.Context(), owner.holding(200).announcement(), announceAt()[:1]))
	eventually(t, "the client knows the owner", time.Second, func() bool {
		return client.neighbour(t, rig4).String() == owner.mac.String()
	})
	after := client.connects(t, span)
	t.Logf("after it, %s: %s", span, after)
	equal(t, "connects that reached the zombie", after.misrouted, 0)
	equal(t, "failed connects", after.failed, 0)
	equal(t, "MAC changes", after.macChanges, 0)
}

// serve answers each connection to port 80 of the pod with one byte.
func serve(t *testing.T, p *pod, name byte) {
	t.Helper()
	var l net.Listener
	check(t, p.ns.Do(func() (err error) {
		l, err = net.Listen("tcp4", ":80")
		return err
	}))
	var accepts sync.WaitGroup
	accepts.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte{name})
			c.Close()
		}
	})
	t.Cleanup(func() {
		l.Close()
		accepts.Wait()
	})
}

// announceEvery makes the pod's own process send gratuitous ARP.
func (p *pod) announceEvery(t *testing.T, d time.Duration) (stop func()) {
	t.Helper()
	out := must(openPort(p.ns.Path(), "eth0"))(t)
	frames := must(announceFrames(p.mac, p.addr))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			for _, f := range frames {
				// A fenced pod's socket gets ENOBUFS.
				if err := out.send(f); err != nil && !errors.Is(err, unix.ENOBUFS) {
					t.Errorf("zombie announces: %v", err)
				}
			}
		}
	})
	return func() {
		cancel()
		run.Wait()
		check(t, out.close())
	}
}

// tally is what a client met.
type tally struct{ connects, misrouted, failed, macChanges int }

func (c tally) String() string {
	return fmt.Sprintf("%d of %d connects reached the zombie, %d failed, %d MAC changes", c.misrouted, c.connects, c.failed, c.macChanges)
}

// connects connects to the address about 48 times a second for d.
func (h *host) connects(t *testing.T, d time.Duration) (c tally) {
	t.Helper()
	changes := h.countMACChanges(t)
	check(t, h.ns.Do(func() error {
		tick := time.NewTicker(time.Second / 48)
		defer tick.Stop()
		for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
			c.connects++
			switch whoAnswers(netip.AddrPortFrom(rig4, 80)) {
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

func whoAnswers(to netip.AddrPort) byte {
	conn, err := net.DialTimeout("tcp4", to.String(), time.Second)
	if err != nil {
		return 0
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(time.Second))
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
	check(t, h.ns.Do(func() error {
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
