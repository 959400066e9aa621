// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

const (
	// etcdKills is how often etcd is killed.
	etcdKills = 3
	// loaders are the pods that come and go at the same time.
	loaders = 6
)

// etcd is killed and starts again while pods come and go. No ADD succeeds without its lease, and no lease
// is left.
func TestEtcdIsKilledWhilePodsComeAndGo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
	defer cancel()
	c := nodes.New(t, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.13")
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	stays := begin(ctx, t, c, crowd(t, c, "stays", len(c.Nodes)))

	var lives atomic.Int64
	var stop atomic.Bool
	var g errgroup.Group
	for loader := range loaders {
		g.Go(func() error {
			for n := 0; !stop.Load(); n++ {
				if err := live(ctx, c, fmt.Sprintf("pod-%d-%d", loader, n), c.Nodes[loader%len(c.Nodes)]); err != nil {
					return err
				}
				lives.Add(1)
			}
			return nil
		})
	}
	goesOn := func() {
		t.Helper()
		before := lives.Load()
		// All that were under way have ended, and all have begun again.
		c.Eventually(t, "pods come and go", func() error {
			if done := lives.Load() - before; done < 2*loaders {
				return fmt.Errorf("%d pods have come and gone", done)
			}
			return nil
		})
	}
	goesOn()
	for range etcdKills {
		check.OK(t, c.Server.RestartEtcd(ctx))
		back := time.Now()
		goesOn()
		t.Logf("%d pods came and went within %s after etcd's return", 2*loaders, time.Since(back).Round(time.Millisecond))
	}
	stop.Store(true)
	check.OK(t, g.Wait())
	c.Eventually(t, "the leases are those of the living", func() error { return errors.Join(c.Revive(), c.LeasesAreLiving(ctx)) })
	each(t, stays, func(s *nodes.Sandbox) error {
		return host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", s.Addr.String()).Run()
	})
	check.OK(t, c.SpeakersAreHolders())
}

// live is the life of one pod. A call of the API server that fails is repeated.
func live(ctx context.Context, c *nodes.Cluster, name string, n *nodes.Node) error {
	again := func(do func() error) error {
		return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) { return do() == nil, nil })
	}
	var pod *corev1.Pod
	tries := 0
	err := again(func() (err error) {
		// The answer to a create may have been lost, so each try has its own name.
		tries++
		pod, err = n.NewPod(ctx, fmt.Sprintf("%s-%d", name, tries), nil)
		return err
	})
	if err != nil {
		return err
	}
	s, err := n.Begin(ctx, pod)
	if err != nil {
		return err
	}
	if err := s.End(ctx); err != nil {
		return err
	}
	return again(func() error { return c.ForgetPod(ctx, pod) })
}
