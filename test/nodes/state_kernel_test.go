// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// noticed is more than enough time for agent and kubelet to notice the state of a disk.
const noticed = time.Minute

// refuses returns an error unless the agent serves no ADD and says why.
func refuses(ctx context.Context, n *nodes.Node, why string) error {
	if err := n.Serves(ctx); err != nil && strings.Contains(err.Error(), why) {
		return nil
	} else if err != nil {
		return fmt.Errorf("the agent does not say %q: %w", why, err)
	}
	return errors.New("the agent serves")
}

// An agent starts on a read-only disk. It frees the address of a pod that ends, reports the fault,
// and serves once the disk is writable.
func TestAnAgentStartsOnAReadOnlyDisk(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 1)
	n := c.Nodes[0]
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	check.OK(t, n.ReplaceDisk())
	pod := started(ctx, t, n, "pod", nil)
	check.OK(t, n.KillAgent())
	check.OK(t, n.SetDiskReadOnly(true))
	check.OK(t, n.StartAgent())
	check.Eventually(t, noticed, "the event", func() error { return eventOf(ctx, c, "Node", n.Name, "StateUnusable", "read-only") })
	check.Eventually(t, noticed, "the agent says what is wrong", func() error { return refuses(ctx, n, "read-write") })
	check.OK(t, c.ForgetPod(ctx, pod.Pod))
	check.OK(t, pod.Del(ctx))
	c.Eventually(t, "the address is free", func() error {
		state, err := stateOf(ctx, c, pod)
		if err == nil && state != "" {
			err = fmt.Errorf("the lease is %s", state)
		}
		return err
	})
	check.OK(t, errors.Join(n.SetDiskReadOnly(false), n.AwaitAgent(ctx)))
	next := started(ctx, t, n, "next", nil)
	check.OK(t, next.Finish(ctx))
	c.Eventually(t, "all is given back", func() error { return c.LeasesAreLiving(ctx) })
}

// The state directory is emptied, and then its disk is replaced, while pods run.
func TestAStateDirectoryThatIsEmptiedIsMadeAgain(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 1)
	n := c.Nodes[0]
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	all := []*nodes.Sandbox{started(ctx, t, n, "first", restarted)}
	for name, strike := range map[string]func() error{"emptied": n.EmptyState, "replaced": n.ReplaceDisk} {
		check.OK(t, strike())
		s := empty(ctx, t, n, name, nil)
		check.OK(t, s.Add(ctx)) // the first try
		all = append(all, s)
		c.Eventually(t, "the journal has the living pods", func() error { return n.Leftovers(all) })
	}
	check.Eventually(t, noticed, "the event", func() error { return eventOf(ctx, c, "Node", n.Name, "StateRestored", "somebody removed files") })
	// All records are lost.
	check.OK(t, n.KillAgent())
	check.OK(t, n.EmptyState())
	check.OK(t, n.AwaitAgent(ctx))
	c.Eventually(t, "the journal has the living pods again", func() error { return n.Leftovers(all) })
	check.OK(t, c.SpeakersAreHolders())
	for _, s := range all {
		check.OK(t, c.ForgetPod(ctx, s.Pod))
		check.OK(t, s.End(ctx))
	}
	c.Settles(ctx, t)
}

func TestAnAgentThatCannotWriteItsStateIsNotReady(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 1)
	n := c.Nodes[0]
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	check.OK(t, n.ReplaceDisk())
	lives := started(ctx, t, n, "lives", nil)
	fill := func(inodes bool) func() (func() error, error) {
		return func() (func() error, error) { return n.Fill(inodes) }
	}
	toggle := func(set func(bool) error) func() (func() error, error) {
		return func() (func() error, error) { return func() error { return set(false) }, set(true) }
	}
	for _, row := range []struct {
		name   string
		strike func() (undo func() error, err error)
		remedy string
	}{
		{"full", fill(false), "free space"},
		{"inodes", fill(true), "df -i"},
		{"read-only", toggle(n.SetReadOnly), "read-write"},
		{"permission", toggle(n.SetImmutable), "lsattr"},
	} {
		t.Run(row.name, func(t *testing.T) {
			undo := check.Value(row.strike())(t)
			undo = sync.OnceValue(undo)
			t.Cleanup(func() { check.OK(t, undo()) })
			check.Eventually(t, noticed, "the agent is not ready", func() error { return refuses(ctx, n, row.remedy) })
			check.Eventually(t, noticed, "the event", func() error { return eventOf(ctx, c, "Node", n.Name, "StateUnusable", row.remedy) })
			s := empty(ctx, t, n, row.name, nil)
			err := s.Add(ctx)
			check.That(t, err != nil && strings.Contains(err.Error(), row.remedy), "ADD says %v", err)
			check.OK(t, undo())
			check.OK(t, n.AwaitAgent(ctx))
			check.OK(t, s.End(ctx))
			s = check.Value(n.Begin(ctx, s.Pod))(t)
			check.OK(t, s.Finish(ctx))
		})
	}
	check.OK(t, lives.Finish(ctx))
	c.Settles(ctx, t)
}

// The API server's clock is an hour ahead of a node's, and then an hour behind. Leases have its time.
func TestLeasesHaveTheTimeOfTheAPIServer(t *testing.T) {
	ctx, c := cluster(t, nodes.Limit, 1)
	n := c.Nodes[0]
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	for i, ahead := range []time.Duration{time.Hour, -time.Hour} {
		n.ShiftAPI(ahead)
		check.OK(t, n.KillAgent())
		check.OK(t, n.AwaitAgent(ctx))
		s := started(ctx, t, n, fmt.Sprintf("pod-%d", i), nil)
		since := time.Until(check.Value(c.Lease(ctx, s.Addr))(t).Spec.Since.Time)
		check.That(t, (since-ahead).Abs() < time.Minute, "the lease is from %s ahead, not %s", since, ahead)
		check.OK(t, s.Finish(ctx))
	}
	c.Settles(ctx, t)
}
