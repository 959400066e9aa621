// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package soak

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/test/nodes"
)

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
	if err != nil {
		f.t.Error(err)
	}
}
