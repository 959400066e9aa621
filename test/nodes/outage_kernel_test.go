// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// deaths are the fewest deaths of sandboxes in one run, crowdOfNode the pods of the node on which they die. With 200,
// the run takes two to five minutes.
const deaths, crowdOfNode = 60, 12

// mortals are pods whose sandboxes die, on a node whose management network comes and goes.
type mortals struct {
	*nodes.Cluster
	t          *testing.T
	ctx        context.Context
	on, other  *nodes.Node
	random     *rand.Rand
	away       bool
	living     []*nodes.Sandbox
	zombies    []*nodes.Sandbox
	pods       int
	moves      int
	longest    time.Duration
	takenAgain int
}

// Sandboxes die at random while the management network of their node is cut, gives no answers, and heals. The
// agent is killed at random too. Each pod has its address again, without a wait for the API server. Pods that
// somebody deletes by force meanwhile lose theirs to others, also if their sandboxes die later. The capture
// at the switch shows one speaker for each address at each time.
func TestSandboxesDieAtRandomWhileTheManagementNetworkIsCut(t *testing.T) {
	ctx, c := cluster(t, 12*nodes.Limit, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.61")
	c.StartController()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	m := &mortals{Cluster: c, t: t, ctx: ctx, on: c.Nodes[0], other: c.Nodes[1], random: rand.New(rand.NewPCG(seed, 0))}
	for range crowdOfNode {
		m.living = append(m.living, m.begin(m.on))
	}
	died := 0
	for ; died < deaths || m.moves <= deaths/8; died++ { // the weather may be good for long
		m.weather()
		m.die(m.random.IntN(len(m.living)))
		if m.away && m.random.IntN(15) == 0 {
			m.replace(m.random.IntN(len(m.living)))
		}
		if len(m.zombies) > 0 && m.random.IntN(4) == 0 {
			m.zombieDies(m.zombies[m.random.IntN(len(m.zombies))])
		}
	}
	m.cut(false, false)
	check.OK(t, m.on.AwaitAgent(ctx))
	back := time.Now()
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx, v1alpha1.StateWarm) })
	check.OK(t, c.SpeakersAreHolders())
	t.Logf("%d deaths, %d of them without the API server (at most %s each); %d pods were deleted by force, %d of their next sandboxes had an address before its next pod; the books agreed %s after the end",
		died, m.moves, m.longest.Round(time.Millisecond), len(m.zombies), m.takenAgain, time.Since(back).Round(time.Millisecond))
	for _, z := range m.zombies {
		check.OK(t, z.End(ctx))
	}
}

// begin starts a new pod.
func (m *mortals) begin(on *nodes.Node) *nodes.Sandbox {
	m.t.Helper()
	m.pods++
	pod := check.Value(on.NewPod(m.ctx, fmt.Sprintf("pod-%d", m.pods), func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}))(m.t)
	return check.Value(on.Begin(m.ctx, pod))(m.t)
}

// weather changes the management network of the node, or kills its agent, at random.
func (m *mortals) weather() {
	switch n := m.random.IntN(40); {
	case n < 4:
		m.cut(true, false)
	case n == 4:
		m.cut(false, true)
	case n < 8:
		m.cut(false, false)
	case n == 8:
		check.OK(m.t, errors.Join(m.on.KillAgent(), m.on.AwaitAgent(m.ctx)))
	}
}

func (m *mortals) cut(shut, silent bool) {
	m.on.ShutAPI(shut)
	m.on.SilenceAPI(silent)
	m.away = shut || silent
}

// die ends a sandbox, and begins the next one of its pod.
func (m *mortals) die(i int) {
	m.t.Helper()
	was, since := m.living[i], time.Now()
	first := m.random.IntN(2) == 0
	if first {
		check.OK(m.t, was.End(m.ctx))
	} else {
		was.Abandon()
	}
	is := check.Value(m.on.Begin(m.ctx, was.Pod))(m.t)
	if m.away {
		m.moves, m.longest = m.moves+1, max(m.longest, time.Since(since))
	}
	if !first {
		check.OK(m.t, was.End(m.ctx))
	}
	check.Equal(m.t, is.Addr, was.Addr, "pod %s had %s and has", was.Pod.Name, was.Addr)
	m.living[i] = is
}

// replace deletes a pod of the node by force, and begins another one on the other node. Its sandbox lives on.
func (m *mortals) replace(i int) {
	m.t.Helper()
	z := m.living[i]
	check.OK(m.t, z.Outlive(m.ctx))
	m.zombies = append(m.zombies, z)
	m.begin(m.other)
	m.cut(false, false) // the next pod of this node needs the API server
	check.OK(m.t, m.on.AwaitAgent(m.ctx))
	m.living[i] = m.begin(m.on)
}

// zombieDies begins the next sandbox of a pod that is gone, as a kubelet that does not know that.
func (m *mortals) zombieDies(z *nodes.Sandbox) {
	m.t.Helper()
	s := check.Value(m.on.NewSandbox(z.Pod))(m.t)
	if s.Add(m.ctx) == nil {
		s.Abandon()
		m.takenAgain++
	}
	check.OK(m.t, s.End(m.ctx))
}
