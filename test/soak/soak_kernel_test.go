// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

const (
	// countVariable and seedVariable are environment variables that say how many
	// lifecycles there are, and which faults come when.
	countVariable, seedVariable = "FENCELINE_SOAK_LIFECYCLES", "FENCELINE_SOAK_SEED"
	defaultCount                = 200

	machines = 3
	// kubelets is how many lifecycles run at a time.
	kubelets = 6
	// patience is how long a pod may wait for its address, and the end for the last lease.
	patience = 2 * time.Minute
	// poolFirst, poolLast and poolSize are what pods share: so few addresses that
	// each is wanted again at once.
	poolFirst, poolLast, poolSize = "10.66.0.32", "10.66.0.43", 12
)

// soak is one run.
type soak struct {
	*nodes.Cluster
	t    *testing.T
	ctx  context.Context
	host *namespaces.Host

	begun atomic.Int64
	// lives are all sandboxes that ever had an address.
	lives lives
}

// TestSoak ends with a line that tells the seed, the faults and the figures.
func TestSoak(t *testing.T) {
	count, seed := number(t, countVariable, defaultCount), number(t, seedVariable, time.Now().UnixNano())
	t.Logf("%s=%d %s=%d", countVariable, count, seedVariable, seed)
	c := nodes.New(t, machines)
	c.Pool("v4", "10.66.0.0/24", poolFirst+"-"+poolLast)
	c.StartController()
	s := &soak{Cluster: c, t: t, ctx: t.Context(), host: c.Host(netip.MustParsePrefix("10.66.0.1/24"))}
	began := time.Now()

	faults := s.startFaults(rand.New(rand.NewPCG(uint64(seed), 0)))
	var g errgroup.Group
	for k := range kubelets {
		random := rand.New(rand.NewPCG(uint64(seed), uint64(k)+1))
		g.Go(func() error {
			var errs []error
			for n := s.begun.Add(1); n <= count; n = s.begun.Add(1) {
				errs = append(errs, s.lifecycle(int(n), random))
			}
			return errors.Join(errs...)
		})
	}
	err := g.Wait()
	struck := faults.stop()
	check.That(t, err == nil, "%v", err)
	took := time.Since(began)

	leaks := s.leaks()
	duplicates := s.duplicates()
	t.Logf("seed %d: %d lifecycles in %s, faults %v: %d duplicates, %d leaks", seed, count, took.Round(time.Second), struck, len(duplicates), len(leaks))
	for _, d := range duplicates {
		t.Error(d)
	}
	for _, l := range leaks {
		t.Error(l)
	}
}

// number reads an environment variable.
func number(t *testing.T, variable string, otherwise int64) int64 {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	check.Must(t, err == nil, "%s: %v", variable, err)
	return n
}

// fault is something that breaks on a node.
type fault struct {
	name   string
	strike func(*faults, *nodes.Node)
}

var kinds = []fault{
	{"agent killed", func(f *faults, n *nodes.Node) { f.must(n.KillAgent()) }},
	{"plugins killed", func(f *faults, n *nodes.Node) { f.must(n.KillPlugins()) }},
	{"connections closed", func(_ *faults, n *nodes.Node) { n.CloseConnections() }},
	{"API server cut off", (*faults).cutAPI},
	{"foreign host", (*faults).foreignHost},
}

// faults strike until they are stopped.
type faults struct {
	*soak
	ctx    context.Context
	random *rand.Rand
	ended  chan struct{}
	cancel context.CancelFunc
	struck map[string]int
}

func (s *soak) startFaults(random *rand.Rand) *faults {
	ctx, cancel := context.WithCancel(s.ctx)
	f := &faults{soak: s, ctx: ctx, cancel: cancel, random: random, ended: make(chan struct{}), struck: map[string]int{}}
	var stops []func()
	for _, n := range s.Nodes {
		stops = append(stops, s.Supervise(n))
	}
	s.t.Cleanup(func() {
		for _, stop := range stops {
			stop()
		}
	})
	go f.run()
	return f
}

func (f *faults) run() {
	defer close(f.ended)
	for f.ctx.Err() == nil {
		rest(f.ctx, f.random, time.Second)
		kind, n := kinds[f.random.IntN(len(kinds))], f.Nodes[f.random.IntN(len(f.Nodes))]
		kind.strike(f, n)
		f.struck[kind.name]++
	}
}

// stop ends the faults and tells how often each struck.
func (f *faults) stop() map[string]int {
	f.cancel()
	<-f.ended
	return f.struck
}

// cutAPI puts the API server out of a node's reach for a moment.
func (f *faults) cutAPI(n *nodes.Node) {
	n.ShutAPI(true)
	rest(f.ctx, f.random, 1500*time.Millisecond)
	n.ShutAPI(false)
}

// foreignHost has a host use an address of the pool for a moment, held or not.
func (f *faults) foreignHost(*nodes.Node) {
	addr := netip.MustParseAddr(poolFirst)
	for range f.random.IntN(poolSize) {
		addr = addr.Next()
	}
	h := f.Host(netip.PrefixFrom(addr, 24))
	_ = h.Command(f.ctx, "ping", "-q", "-c", "2", "-i", "0.05", "-W", "1", f.host.Addr.String()).Run()
	rest(f.ctx, f.random, time.Second)
	f.must(h.Unplug())
}

func (f *faults) must(err error) {
	check.That(f.t, err == nil, "%v", err)
}

// duplicates returns the frames by which a pod spoke for an address while it was another pod's.
func (s *soak) duplicates() []string {
	frames, err := s.Frames.Stop()
	check.That(s.t, err == nil, "%v", err)
	pods := map[string]string{} // MAC to container
	for _, box := range s.lives.all {
		pods[box.MAC.String()] = box.ContainerID
	}
	var found []string
	for _, box := range s.lives.all {
		check.That(s.t, !box.Until.IsZero(), "%s still lives", box.ContainerID)
		for _, f := range capture.SpokenFor(between(frames, box.Since, box.Until), box.Addr) {
			other := pods[f.Source.String()]
			if other != "" && other != box.ContainerID {
				found = append(found, fmt.Sprintf("%s was %s's, and %s spoke for it: %s", box.Addr, box.ContainerID, other, f))
			}
		}
	}
	return found
}

// between returns the frames of a time; frames come in the order of time.
func between(frames []capture.Frame, since, until time.Time) []capture.Frame {
	at := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(frames, t, func(f capture.Frame, t time.Time) int { return f.Time.Compare(t) })
		return i
	}
	from, to := at(since), at(until)
	return frames[from:max(from, to)]
}

// leaks waits until everything is given back, and returns what is not.
func (s *soak) leaks() []string {
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		left := s.left()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		<-tick.C
	}
}

// left are leases, entries, spooled calls, guards and namespaces of pods that have ended.
func (s *soak) left() []string {
	var left []string
	if err := s.LeasesAreLiving(s.ctx); err != nil {
		left = strings.Split(err.Error(), "\n")
	}
	for _, n := range s.Nodes {
		guards, err := n.Guards()
		if err != nil || len(guards) > 0 {
			left = append(left, fmt.Sprintf("%s keeps the guards %v (%v)", n.Name, guards, err))
		}
		visits, err := n.Visits()
		if err != nil || len(visits) > 0 {
			left = append(left, fmt.Sprintf("threads of the agent of %s stay in %v (%v)", n.Name, visits, err))
		}
	}
	return left
}
