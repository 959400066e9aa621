// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// servedLimit is the longest time without service once the address of a lost pod is due. It is too
// short for help by a person.
const servedLimit = 15 * time.Second

// A node with three pods loses its power: web-0 of a StatefulSet, and two pods with a pool of one
// address each. Pods of another pool use the same parent on the other nodes. The pools have no
// spec.parents, but these nodes have heard the lost pods there, in whichever order pods started. The
// next pods get the addresses, proven by silence, and keep them when the node is back.
func TestAddressesOfANodeWithoutPowerServeOtherPods(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	c.NamedPool("early", "10.66.0.0/24", "10.66.0.20")
	c.NamedPool("late", "10.66.0.0/24", "10.66.0.21")
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	o := &off{Cluster: c, t: t, ctx: ctx}
	dark, light := c.Nodes[0], c.Nodes[1]
	web := setOf("web", 1)
	check.OK(t, c.Create(ctx, web)) // it keeps the address until the next pod takes it
	all := []*powerless{
		{was: "early-1", is: "early-2", change: nodes.Wants("early")},
		{was: "web-0", is: "web-0", change: webOf(web.UID)},
		{was: "late-1", is: "late-2", change: nodes.Wants("late")},
	}
	all[0].lost = started(ctx, t, dark, all[0].was, all[0].change)
	begin(ctx, t, c, crowd(t, c, "heard", len(c.Nodes))[1:]) // so that the silence of others counts
	for _, p := range all[1:] {
		p.lost = started(ctx, t, dark, p.was, p.change)
	}

	check.OK(t, errors.Join(dark.KillAgent(), dark.CutUnderlay()))
	for _, p := range all {
		check.OK(t, p.lost.Remove())
	}
	cut := time.Now()
	o.report(dark, corev1.ConditionUnknown)
	for _, p := range all {
		check.OK(t, c.ForgetPod(ctx, p.lost.Pod))
		due := time.Now()
		soon, cancel := context.WithTimeout(ctx, nodes.Limit/3)
		defer cancel()
		p.next = started(soon, t, light, p.is, p.change)
		served := time.Since(due)
		t.Logf("%s serves %s after %s was due", p.is, served.Round(time.Millisecond), p.was)
		check.That(t, served <= servedLimit, "%s waited for %s; %s are allowed", p.is, served, servedLimit)
		check.Equal(t, p.next.Addr, p.lost.Addr, "%s had %s and %s has", p.was, p.lost.Addr, p.is)
		check.OK(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", p.next.Addr.String()).Run())
	}

	check.OK(t, errors.Join(dark.HealUnderlay(), dark.StartAgent(), dark.AwaitAgent(ctx)))
	o.report(dark, corev1.ConditionTrue)
	for _, p := range all {
		check.OK(t, p.lost.End(ctx))
	}
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
	for _, p := range all {
		check.OK(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", p.next.Addr.String()).Run())
		speakers := capture.Speakers(capture.After(c.Frames.Frames(), cut), p.next.Addr)
		check.That(t, slices.Equal(speakers, []string{p.next.MAC.String()}), "since the cut, %v speak for %s of %s", speakers, p.next.Addr, p.is)
	}
	check.OK(t, c.SpeakersAreHolders())
}

// powerless is a pod whose node has lost its power, and the next pod with its address.
type powerless struct {
	was, is    string
	change     func(*corev1.Pod)
	lost, next *nodes.Sandbox
}

// started makes a pod on a node, and a sandbox with an address for it.
func started(ctx context.Context, t *testing.T, n *nodes.Node, name string, change func(*corev1.Pod)) *nodes.Sandbox {
	t.Helper()
	pod := check.Value(n.NewPod(ctx, name, change))(t)
	return check.Value(n.Begin(ctx, pod))(t)
}

// Two switches are not connected, and both have a parent of the same name. Nodes that have never
// heard the holder of an address cannot prove that it is silent, even if they hear each other in the
// same subnet.
func TestSilenceOnAnotherSegmentOfTheSameNameProvesNothing(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	c.NamedPool("own", "10.66.0.0/24", "10.66.0.20")
	dark := c.Nodes[0]
	check.OK(t, dark.MoveElsewhere())
	c.StartController()
	o := &off{Cluster: c, t: t, ctx: ctx}
	begin(ctx, t, c, crowd(t, c, "heard", len(c.Nodes))[1:])
	was := started(ctx, t, dark, "app-1", nodes.Wants("own"))

	// The pod lives on behind a cut management network.
	check.OK(t, dark.KillAgent())
	o.report(dark, corev1.ConditionUnknown)
	check.OK(t, c.ForgetPod(ctx, was.Pod))
	was.Abandon()
	var asked []string
	c.Eventually(t, "both other nodes say that they cannot tell", func() error {
		l := &v1alpha1.IPLease{}
		err := c.Get(ctx, client.ObjectKey{Name: was.Addr.String()}, l)
		check.Must(t, err == nil, "the lease is gone while its pod lives: %v", err)
		if l.Spec.State == v1alpha1.StateQuarantined && l.Spec.Message != "" && !slices.Contains(asked, l.Spec.NodeName) {
			asked = append(asked, l.Spec.NodeName)
			t.Logf("%s: %s", l.Spec.NodeName, l.Spec.Message)
		}
		if len(asked) < 2 {
			return fmt.Errorf("%s %s at %s: %q", l.Spec.State, l.Spec.Reason, l.Spec.NodeName, l.Spec.Message)
		}
		return nil
	})
	check.OK(t, c.SpeakersAreHolders())
}
