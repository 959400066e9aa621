// SPDX-License-Identifier: Apache-2.0

//go:build bench && kernel

package segment

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// TestFiguresInAStorm prints the time from a claim to its ack, without and in a storm of hostile
// claims, and the time of a probe, without and in a storm of ARP.
func TestFiguresInAStorm(t *testing.T) {
	t.Run("claims", func(t *testing.T) {
		r := newRig(t)
		n1, n2 := r.addNode("node1"), r.addNode("node2")
		p := n2.addPod("pod", rig4, 10)
		attacker := r.addHost("attacker")
		frames := hostileClaims(t, rig4, 10)
		watch := check.Value(n1.set.watches.start(n1.seg.key(rig4)))(t)
		clock := &sendClock{parentWire: n1.seg.wire, kernel: n1.kernel}
		n1.seg.wire = clock
		token := uint64(10)
		round := func() time.Duration {
			// A newer lease of the same pod ends the fence of the round before.
			p.lease(token)
			equal(t, "fenced before the claim", n2.isFenced(p), false)
			token += 10
			check.OK(t, n1.seg.claimOnce(t.Context(), Claim{Addr: rig4, Network: rigNetwork, Token: token, PreviousToken: token - 10}, nil))
			begin := clock.boot
			awaitAck(t, watch, token)
			acks := n1.ackedAt()
			return acks[len(acks)-1] - begin
		}
		idle := measure(figure.Size(1000, 20), round)
		s := attacker.startStorm(t, n2, 100_000, frames)
		s.blown(uint64(figure.Size(10_000, 1000)))
		stormy := measure(figure.Size(1000, 20), round)
		s.stop()
		figure.Report(t, "claim to ack in a storm of hostile claims, p50", stormy.times(idle, 50), "× idle")
		t.Logf("claim to ack: idle %s, in the storm %s, storm / idle %s", idle.quantiles(), stormy.quantiles(), stormy.over(idle))
		n2.note(func() {
			for _, ev := range n2.fenced {
				check.That(t, ev.Token%10 == 0 && ev.Token <= token, "token %d of the storm has fenced", ev.Token)
			}
		})
		check.OK(t, watch.end())
	})
	t.Run("ARP", func(t *testing.T) {
		r := newRig(t)
		n := r.addNode("node1")
		used, free := netip.MustParseAddr("10.99.0.60"), netip.MustParseAddr("10.99.0.61")
		r.addHost("owner", used)
		heard := 0
		round := func() time.Duration {
			if n.probe(used, params50).Conflict {
				heard++
			}
			begin := time.Now()
			equal(t, "conflict of a free address", n.probe(free, params50).Conflict, false)
			return time.Since(begin)
		}
		rounds := figure.Size(30, 2)
		idle, before := measure(rounds, round), residentKiB(t)
		s := r.addHost("attacker").startStorm(t, n, 50_000, strangersARP(t, used, 16384))
		s.blown(uint64(figure.Size(10_000, 1000)))
		stormy := measure(rounds, round)
		after := residentKiB(t)
		s.stop()
		equal(t, "answers heard", heard, 2*rounds)
		figure.Report(t, "probe of a free address in a storm of ARP, p50", stormy.times(idle, 50), "× idle")
		t.Logf("probe of a free address: idle %s, in the storm %s, storm / idle %s; memory of the agent %d KiB before, %d KiB after",
			idle.quantiles(), stormy.quantiles(), stormy.over(idle), before, after)
	})
}

// measure returns the results of n rounds.
func measure(n int, round func() time.Duration) (d durations) {
	for range n {
		d = append(d, round())
	}
	return d
}

// quantiles prints p50, p99 and the maximum.
func (d durations) quantiles() string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s", d.percentile(50), d.percentile(99), d.percentile(100))
}

// over prints the ratios of p50 and p99 to those of calm.
func (d durations) over(calm durations) string {
	return fmt.Sprintf("p50 %.2f, p99 %.2f", d.times(calm, 50), d.times(calm, 99))
}

// times returns the ratio of a percentile to that of calm.
func (d durations) times(calm durations, percent int) float64 {
	return float64(d.percentile(percent)) / float64(calm.percentile(percent))
}

func (d durations) percentile(percent int) time.Duration { return figure.Percentile(d, percent) }

// residentKiB returns the resident memory of this process.
func residentKiB(t *testing.T) int {
	t.Helper()
	text := check.Value(os.ReadFile("/proc/self/status"))(t)
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	check.Must(t, found != nil, "/proc/self/status has no VmRSS")
	return check.Value(strconv.Atoi(string(found[1])))(t)
}
