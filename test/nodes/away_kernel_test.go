// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// atOnce is the number of calls of the plugin that run at the same time.
const atOnce = 8

// crowd makes pods without sandboxes. The nodes take turns.
func crowd(t *testing.T, c *nodes.Cluster, name string, size int) []*corev1.Pod {
	t.Helper()
	pods := make([]*corev1.Pod, size)
	var err error
	for i := range pods {
		pods[i], err = c.Nodes[i%len(c.Nodes)].NewPod(t.Context(), fmt.Sprintf("%s-%d", name, i), nil)
		check.OK(t, err)
	}
	return pods
}

// begin gives each pod a sandbox with an address.
func begin(ctx context.Context, t *testing.T, c *nodes.Cluster, pods []*corev1.Pod) []*nodes.Sandbox {
	t.Helper()
	sandboxes := make([]*nodes.Sandbox, len(pods))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, pod := range pods {
		g.Go(func() (err error) {
			sandboxes[i], err = c.NodeOf(pod).Begin(ctx, pod)
			return err
		})
	}
	check.OK(t, g.Wait())
	return sandboxes
}

// each calls do for all sandboxes, at most atOnce at the same time.
func each(t *testing.T, sandboxes []*nodes.Sandbox, do func(*nodes.Sandbox) error) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, s := range sandboxes {
		g.Go(func() error { return do(s) })
	}
	check.OK(t, g.Wait())
}

// Pods end while the API server is away. No DEL fails. Once the server is back, every lease ends,
// whether the agent was restarted meanwhile or not.
func TestPodsThatEndWhileTheAPIServerIsAwayLeakNoLease(t *testing.T) {
	const size = 50
	t.Parallel()
	c := nodes.New(t, 1)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.61")
	n := c.Nodes[0]
	for _, v := range []struct {
		name string
		// half runs after half of the pods have ended, all after all of them.
		half, all func() error
	}{
		{"the agent lives on", func() error { return nil }, func() error { return nil }},
		{"the agent is killed and starts again meanwhile", n.KillAgent, n.StartAgent},
	} {
		t.Run(v.name, func(t *testing.T) {
			ctx := within(t, 4*nodes.Limit)
			pods := crowd(t, c, fmt.Sprintf("pod-%d", len(v.name)), size)
			sandboxes := begin(ctx, t, c, pods)
			check.OK(t, c.LeasesAreLiving(ctx))

			check.OK(t, c.Server.StopAPIServer(ctx))
			away := time.Now()
			end := func(s *nodes.Sandbox) error {
				if err := s.Del(ctx); err != nil {
					return err
				}
				return s.Remove()
			}
			each(t, sandboxes[:size/2], end)
			check.OK(t, v.half())
			each(t, sandboxes[size/2:], end)
			check.OK(t, v.all())
			t.Logf("%d DELs were answered within %s", size, time.Since(away).Round(time.Millisecond))
			// Each DEL is on disk: in the agent's journal or in the plugin's spool.
			check.That(t, n.Leftovers(nil) != nil, "nobody remembers the DELs")
			check.OK(t, c.Server.StartAPIServer(ctx))
			back := time.Now()
			c.Eventually(t, "every lease is gone", func() error { return c.LeasesAreLiving(ctx) })
			t.Logf("%d leases were gone %s after the API server's return", size, time.Since(back).Round(time.Millisecond))
			check.OK(t, n.AwaitAgent(ctx))
		})
		if t.Failed() {
			return
		}
	}
	check.OK(t, c.SpeakersAreHolders())
}
