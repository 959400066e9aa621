// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// A copy of the cluster is restored from a backup on the same VLAN, for example to rehearse a
// disaster. It has the same networks and the same claim key. To the copy, the machines of the
// original look lost, so it claims all their addresses.
func TestACopyOfTheClusterDoesNotTouchTheOriginal(t *testing.T) {
	for name, c := range map[string]struct {
		bump   string
		fenced bool
	}{
		"with the bump of the manual, nothing is fenced":           {"1000000000", false},
		"with a small bump, what it fenced speaks again by itself": {"1000000", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copyBeside(t, c.bump, c.fenced)
		})
	}
}

func copyBeside(t *testing.T, bump string, fenced bool) {
	ctx := within(t, 2*nodes.Limit)
	start := time.Now()
	c := nodes.New(t, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.30")
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	c.StartController()
	var pods []*nodes.Sandbox
	for i, n := range c.Nodes[:2] {
		for j := range 3 {
			pod := check.Value(n.NewPod(ctx, fmt.Sprintf("web-%d-%d", i, j), nil))(t)
			s := check.Value(n.Begin(ctx, pod))(t)
			pods = append(pods, s)
		}
	}
	reach(ctx, t, host, pods)
	file := check.Value(c.Server.Backup(ctx))(t)
	copied := c.Copy(ctx, file, "--bump-revision", bump, "--mark-compacted")
	began := time.Now()
	copied.StartController()

	t.Logf("the copy runs after %s", time.Since(start))
	copied.Eventually(t, "the copy has claimed every address of the original", func() error {
		frames := capture.After(c.Frames.Frames(), began)
		for _, s := range pods {
			l := &v1alpha1.IPLease{}
			err := copied.Get(ctx, client.ObjectKey{Name: s.Addr.String()}, l)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			if err == nil && l.Spec.State == v1alpha1.StateBound {
				return fmt.Errorf("lease %s is still Bound in the copy", l.Name)
			}
			if !slices.ContainsFunc(frames, func(f capture.Frame) bool {
				return f.Kind == "claim" && f.Port == "ul-n3" && f.Target == s.Addr
			}) {
				return fmt.Errorf("the copy has sent no claim for %s", s.Addr)
			}
			switch {
			case fenced:
			case err != nil:
				return fmt.Errorf("the copy has freed %s: %w", s.Addr, err)
			case !strings.Contains(l.Spec.Message, "answers"):
				return fmt.Errorf("the lease of %s in the copy says %q", s.Addr, l.Spec.Message)
			}
		}
		return nil
	})
	t.Logf("judged after %s", time.Since(start))
	if fenced {
		c.Eventually(t, "the original says that the fences have ended", func() error { return tellsOf(ctx, c, "FenceEnded", pods) })
	}
	reach(ctx, t, host, pods)
	check.That(t, tellsOf(ctx, c, "AddressLost", pods[:1]) != nil, "a pod of the original lost its address")
	if !fenced {
		check.That(t, tellsOf(ctx, c, "FenceEnded", pods[:1]) != nil, "a pod of the original was fenced")
		check.OK(t, c.SpeakersAreHolders())
	}

	// Both clusters go on, and no address has two speakers.
	for i, who := range []*nodes.Cluster{c, copied} {
		pod := check.Value(who.Nodes[0].NewPod(ctx, fmt.Sprintf("next-%d", i), nil))(t)
		s := check.Value(who.Nodes[0].Begin(ctx, pod))(t)
		if slices.ContainsFunc(pods, func(other *nodes.Sandbox) bool { return other.Addr == s.Addr }) {
			t.Errorf("the new pod %s got %s, which another pod has", pod.Name, s.Addr)
		}
		pods = append(pods, s)
	}
	reach(ctx, t, host, pods)
}

// reach pings pods from a host.
func reach(ctx context.Context, t *testing.T, host *namespaces.Host, pods []*nodes.Sandbox) {
	t.Helper()
	each(t, pods, func(s *nodes.Sandbox) error {
		return host.Command(ctx, "ping", "-q", "-c", "3", "-i", "0.2", "-w", "30", s.Addr.String()).Run()
	})
}

// tellsOf returns an error that names the sandboxes whose pods have no event with the reason.
func tellsOf(ctx context.Context, c *nodes.Cluster, reason string, of []*nodes.Sandbox) error {
	var errs []error
	for _, s := range of {
		errs = append(errs, eventOf(ctx, c, "Pod", s.Pod.Name, reason, ""))
	}
	return errors.Join(errs...)
}
