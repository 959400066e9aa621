// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
)

// durations prints as their median and maximum.
type durations []time.Duration

func (d durations) String() string {
	s := slices.Sorted(slices.Values(d))
	return fmt.Sprintf("p50 %s, max %s", s[len(s)/2], s[len(s)-1])
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
			seen, claims := startCapture(t, r.network, n2.port), startCapture(t, r.network, n1.port)
			watch := check.Value(n1.set.watches.start(n1.seg.key(rig4)))(t)
			kernel := n2.kernel
			if !alive {
				n2.kill()
				// For the rig to renew the lease between rounds; nobody reads an event.
				kernel = check.Value(bpf.Open(bpf.Options{Dir: n2.pins}))(t)
			}
			stop := client.arpLoad(t, rig4)
			clock := &sendClock{parentWire: n1.seg.wire, kernel: n1.kernel}
			n1.seg.wire = clock
			sent := make([]time.Duration, rounds) // boot time
			var last durations
			for i := range rounds {
				// A newer lease of the same pod ends the fence of the round before.
				token := uint64(10 * (i + 1))
				check.OK(t, kernel.Leases.Install(zombie.key(), bpf.Lease{Token: token, Network: rigNetwork, Slot: zombie.slot, MAC: zombie.mac}))
				seen.reset()
				claims.reset()
				check.Becomes(t, patience, "the zombie answers", func() bool { return len(seen.list(from(zombie.mac, rig4))) > 3 })
				check.OK(t, n1.seg.claimOnce(t.Context(), Claim{Addr: rig4, Network: rigNetwork, Token: token + 1, PreviousToken: token}, nil))
				sent[i] = clock.boot
				awaitAck(t, watch, token+1)
				// The load goes on, and the fence meets it. After that the mark leaves the node by the same
				// port: the capture has by then what the zombie has said.
				refused := refusedByFence(t, kernel)
				check.Becomes(t, patience, "the fence refuses frames", func() bool { return refusedByFence(t, kernel) >= refused+5 })
				mark := netip.MustParseAddr("10.99.0.77")
				(&host{ns: n2.ns, mac: n2.mac}).announce(t, mark)
				check.Becomes(t, patience, "the mark is captured", func() bool { return len(seen.list(from(n2.mac, mark))) > 0 })
				// By the kernel's times: this process may have slept on its way.
				check.Becomes(t, patience, "the claim was captured", func() bool { return len(claims.list(claiming(token+1))) > 0 })
				frames, left := seen.list(from(zombie.mac, rig4)), claims.list(claiming(token+1))
				last = append(last, max(0, frames[len(frames)-1].Time.Sub(left[0].Time)))
			}
			stop()
			check.OK(t, watch.end())
			if !alive {
				check.OK(t, kernel.Close())
				n2.start() // takes the pins up, and reads what nobody has read
			}
			check.Becomes(t, patience, "all fences are reported", func() bool { return len(n2.fencedAt()) >= rounds })
			fence, ack := since(sent, n2.fencedAt()), since(sent, n1.ackedAt())
			after := 0
			for _, d := range last {
				if d > 0 {
					after++
				}
			}
			t.Logf("%s, %d rounds: claim to fence %s; claim to ack %s; zombie's last frame after the claim %s (any at all in %d rounds)",
				name, rounds, fence, ack, last, after)
			m := slices.Max(last)
			check.That(t, m <= 50*time.Millisecond, "the zombie spoke %s after the claim", m)
		})
	}
}

// refusedByFence counts the frames of pods, and for them, that their fences have dropped.
func refusedByFence(t *testing.T, k *bpf.Kernel) (n uint64) {
	t.Helper()
	for counter, frames := range check.Value(k.Counters())(t) {
		if counter.Result == bpf.ResultDropFenced {
			n += frames
		}
	}
	return n
}

// sendClock notes when the last frame was handed to the kernel.
type sendClock struct {
	parentWire
	kernel *bpf.Kernel
	boot   time.Duration
}

func (c *sendClock) Send(frame []byte) error {
	c.boot = bpf.Now()
	return c.parentWire.Send(frame)
}

// claiming matches claims with a token.
func claiming(token uint64) func(capture.Frame) bool {
	return func(f capture.Frame) bool {
		c, err := capture.Claim(f.Payload, testKey)
		return err == nil && c.Token == token && c.Flags&claim.FlagAck == 0
	}
}

func awaitAck(t *testing.T, w *watch, token uint64) {
	t.Helper()
	timeout := time.After(patience)
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

func (n *node) times(events *[]bpf.Event) (at []time.Duration) {
	n.note(func() {
		for _, ev := range *events {
			at = append(at, ev.At)
		}
	})
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
