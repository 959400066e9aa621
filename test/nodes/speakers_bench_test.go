// SPDX-License-Identifier: Apache-2.0

//go:build bench && kernel && !guest

package nodes_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
)

const (
	// splitFor is how long a split lasts from the first answer of the second speaker on.
	splitFor = 2 * time.Second
	// alone is how long only one pod must have answered before the next round.
	alone = 500 * time.Millisecond
	// together is the time within which two pods count as speaking both: two questions.
	together = 2 * network.CryEvery
)

// What an exclusive address costs a takeover of keepalived, and what it saves: a host asks all for the address all the
// time, while the network between the pods is split and the preferred one ends. Beside it, at the same time, is a virtual
// address that is not exclusive, for which the guard passes all frames of both pods: keepalived as it is.
func TestTakeoversOfAnExclusiveAddress(t *testing.T) {
	for name, exclusive := range map[string]bool{"exclusive": true, "keepalived alone": false} {
		t.Run(name, func(t *testing.T) {
			p := readyPair(t, 2*nodes.Limit, "", exclusive)
			p.startA()
			host := p.Host(netip.MustParsePrefix("10.66.0.250/24"))
			stop := check.Value(host.Ask(namespaces.HostInterface, host.Addr, netip.MustParseAddr(vip)))(t)
			defer stop()
			p.alone(p.a, p.b)
			keepalived(t, p.b, 100, "")
			var stops, cuts, both []time.Duration
			for range figure.Size(9, 1) {
				p.alone(p.a, p.b)
				cut := time.Now()
				check.OK(t, p.Isolate(true))
				cuts = append(cuts, p.first(p.b, cut).Sub(cut))
				<-time.After(splitFor)
				check.OK(t, p.Isolate(false))
				p.alone(p.a, p.b)
				both = append(both, p.both(cut))

				end := time.Now()
				check.OK(t, p.ofA.Stop(t.Context(), nodes.Limit))
				stops = append(stops, p.first(p.b, end).Sub(end))
				p.alone(p.b, p.a)
				p.startA()
			}
			report := func(what string, took []time.Duration) {
				t.Logf("%s: %v", what, took)
				figure.Report(t, what+", "+name+", p50", figure.Milliseconds(figure.Median(took)), "ms")
			}
			report("virtual address, from the end of its speaker to the next", stops)
			report("virtual address, from the cut of its speaker's node to the next", cuts)
			report("virtual address, both speak while the network is split for 2 s and after", both)
		})
	}
}

// alone waits until one pod alone has answered for a while.
func (p *pair) alone(s, other *nodes.Sandbox) {
	p.t.Helper()
	p.Eventually(p.t, s.Pod.Name+" speaks alone", func() error {
		since := time.Now().Add(-alone)
		if n := len(p.spoken(other, since)); n > 0 {
			return fmt.Errorf("the other pod has sent %d frames", n)
		}
		if len(p.spoken(s, since)) == 0 {
			return errors.New("not heard")
		}
		return nil
	})
}

// first waits for the first frame of a pod for the address, and returns its time.
func (p *pair) first(s *nodes.Sandbox, since time.Time) (at time.Time) {
	p.t.Helper()
	p.Eventually(p.t, s.Pod.Name+" speaks", func() error {
		all := p.spoken(s, since)
		if len(all) == 0 {
			return errors.New("not heard")
		}
		at = all[0].Time
		return nil
	})
	return at
}

// both returns the time in which both pods have spoken, in steps.
func (p *pair) both(since time.Time) time.Duration {
	steps := func(s *nodes.Sandbox) (all []int64) {
		for _, f := range p.spoken(s, since) {
			all = append(all, int64(f.Time.Sub(since)/together))
		}
		return slices.Compact(all)
	}
	a, b := steps(p.a), steps(p.b)
	n := 0
	for _, step := range a {
		if _, found := slices.BinarySearch(b, step); found {
			n++
		}
	}
	return time.Duration(n) * together
}
